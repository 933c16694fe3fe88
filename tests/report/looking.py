"""What one would see that is wrong with a page: expressions for a browser, each of which gives what it found."""

VISIBLE = "(e => e.getClientRects().length > 0)"

STICKS_OUT = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
"""By how many pixels the page scrolls sideways."""

OVERFLOWS = """[...document.querySelectorAll('body *:not(svg *)')]
  .filter(e => e.clientWidth && e.scrollWidth > e.clientWidth + 1)
  .map(e => `${e.tagName}.${e.className}: ${e.scrollWidth} in ${e.clientWidth}, ${e.textContent.slice(0, 30)}`)"""
"""Elements whose content is wider than they are: cut, scrolled, or over what is beside them."""

CUT = """[...document.querySelectorAll('figure svg')].filter(s => s.getClientRects().length).flatMap(svg => {
  const all = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text, image, rect.node, polygon')].filter(e => {
    const own = e.getBoundingClientRect();
    return own.width && !e.closest('[clip-path]') && (own.left < all.left - 1 || own.right > all.right + 1
      || own.top < all.top - 1 || own.bottom > all.bottom + 1);
  }).map(e => e.tagName + ': ' + e.textContent);
})"""
"""Parts of pictures that reach beyond them, where they are not drawn."""

TINY = """[...document.querySelectorAll('figure svg text')].filter(t => t.getClientRects().length)
  .filter(t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a < 6).map(t => t.textContent)"""
"""Words of pictures that are too small to be read."""

OVERLAPS = """(() => {
  const found = [], meet = (p, q, wide, high) =>
    Math.min(p.right, q.right) - Math.max(p.left, q.left) > wide
    && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > high * Math.min(p.height, q.height);
  const compare = texts => texts.forEach(([a, p], k) => texts.slice(k + 1).forEach(([b, q]) => {
    if (meet(p, q, 2, 0.4)) found.push(a + ' | ' + b);
  }));
  for (const svg of document.querySelectorAll('figure svg'))
    compare([...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]));
  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest('svg, style, title, thead')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) lines.push([node.data.trim().slice(0, 30), box]);
  }
  const rows = new Map();
  for (const line of lines)
    for (let row = Math.floor(line[1].top / 40); row <= Math.floor(line[1].bottom / 40); row++)
      rows.set(row, [...(rows.get(row) ?? []), line]);
  for (const row of rows.values()) compare(row);
  return [...new Set(found)];
})()"""
"""Pairs of texts that lie on each other, in pictures and on the page."""

BROKEN = """[...document.querySelectorAll('td, th')].filter(e => {
  if (!/^[a-z]{2,14}$/i.test(e.innerText.trim())) return false;
  const range = document.createRange();
  range.selectNodeContents(e);
  return range.getClientRects().length > 1;
}).map(e => e.innerText.trim())"""
"""Single words of tables that are broken over lines."""

EYES = {
    "sticks out": STICKS_OUT,
    "overflows": OVERFLOWS,
    "cut": CUT,
    "overlaps": OVERLAPS,
    "tiny": TINY,
    "broken": BROKEN,
}
