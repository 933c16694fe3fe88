"""The page in a real browser: nothing is asked of the network, nothing complains, nothing sticks out."""

import http.server
import threading

import pytest
from browser import Browser, find_browser
from looking import EYES
from pages import PAGES

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome on the PATH")

TWICE = """(() => {
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  return ids.filter((id, k) => ids.indexOf(id) !== k);
})()"""
DANGLING = """[...document.querySelectorAll('svg use')].map(e => e.getAttribute('href').slice(1))
  .filter(id => !document.getElementById(id))"""
EMPTY_IMAGES = """[...document.images].filter(i => !i.naturalWidth).length
  + [...document.querySelectorAll('.wide svg image')].filter(i => !i.getBoundingClientRect().width).length"""
DRAWN = """[...document.querySelectorAll('figure svg')].filter(s => s.getClientRects().length)
  .every(s => s.getBoundingClientRect().height > 40)"""
COLOURS = """[getComputedStyle(document.body).backgroundColor,
  getComputedStyle(document.querySelector('svg text')).fill]"""
FONTS = """[...document.querySelectorAll('svg text')]
  .filter(t => getComputedStyle(t).fontFamily !== getComputedStyle(document.body).fontFamily).length"""
COLUMNS = "new Set([...document.querySelectorAll('.areas > div')].map(p => p.getBoundingClientRect().left)).size"
STAGES = (
    "document.querySelectorAll('.stages span').length",
    """[...document.querySelectorAll('.stages')].flatMap(row => {
      const [places, end] = [[...row.children].map(e => e.getBoundingClientRect()), row.getBoundingClientRect().right];
      return places.filter((p, k) => p.right > (k + 1 < places.length ? places[k + 1].left : end) + 1);
    })""",
)


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


@pytest.mark.parametrize("name", PAGES)
def test_page_is_quiet_and_asks_nothing_of_the_network(browser, page, name):
    seen = browser.open(page(name), TWICE, DANGLING, EMPTY_IMAGES, DRAWN, FONTS)
    assert seen.complaints == []
    assert seen.requests[0] == page(name).as_uri()
    assert all(address.startswith("data:") for address in seen.requests[1:])
    assert seen.values == [[], [], 0, True, 0]


@pytest.mark.parametrize(("width", "media"), [(400, "screen"), (800, "screen"), (1200, "screen"), (718, "print")])
@pytest.mark.parametrize("name", PAGES)
def test_all_of_a_page_can_be_seen(browser, page, name, width, media):
    """Nothing overflows its box, lies on something else, is cut, is too small, or makes the page scroll sideways.

    On paper there are 718 pixels between the margins of A4.
    """
    seen = browser.open(page(name), *EYES.values(), width=width, media=media)
    assert dict(zip(EYES, seen.values, strict=True)) == {"sticks out": 0} | {name: [] for name in [*EYES][1:]}


def test_panels_stand_side_by_side_as_there_is_room(browser, page):
    def columns(name, width):
        return browser.open(page(name), COLUMNS, width=width).values[0]

    assert {width: columns("pairs", width) for width in (1100, 390)} == {1100: 5, 390: 2}
    assert {width: columns("staged", width) for width in (1100, 390)} == {1100: 3, 390: 1}


@pytest.mark.parametrize("width", [1100, 390])
def test_names_of_stages_stay_within_their_panel(browser, page, width):
    [labels, outside] = browser.open(page("staged"), *STAGES, width=width).values
    assert labels == 18
    assert outside == []


def test_figures_follow_the_colour_scheme(browser, page):
    [[light_page, light_text]] = browser.open(page("spirals"), COLOURS).values
    [[dark_page, dark_text]] = browser.open(page("spirals"), COLOURS, dark=True).values
    assert brightness(light_page) > 200 > 130 > brightness(light_text)
    assert brightness(dark_page) < 60 < 130 < brightness(dark_text)


def brightness(colour: str) -> float:
    return sum(map(float, colour.strip("rgba()").split(",")[:3])) / 3


def test_a_page_that_does_wrong_is_caught(browser, tmp_path):
    """Control: the same eyes see a request, an error, an exception, a double id and what is too wide."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/picture.png"
        page = tmp_path / "bad.html"
        page.write_text(
            f"<!doctype html><img src='{address}'><p id=a style='width:3000px'>wide</p><p id=a></p>"
            "<figure><svg viewBox='0 0 99 9' width=99><text x=60>too long</text><text x=61>it</text>"
            "<text font-size=4>tiny</text></svg></figure><div style='width:30px'>overflowing</div>"
            "<table style='width:9px;overflow-wrap:anywhere'><td>expectation</td></table>"
            "<script>console.error('said'); setTimeout(() => { throw new Error('thrown'); }, 50);</script>"
        )
        seen = browser.open(page, TWICE, *EYES.values())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert asked == ["/picture.png"]
    assert address in seen.requests
    assert any("said" in text for text in seen.complaints)
    assert any("thrown" in text for text in seen.complaints)
    assert any("net::ERR_" in text for text in seen.complaints)
    twice, sticks_out, *others = seen.values
    assert twice == ["a"]
    assert sticks_out > 1000
    assert all(others)
