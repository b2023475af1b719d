"""Groups whose texts are read only when a screen needs them."""

from console.models.screen_registry import SCREENS
from console.session.history import TEXT_PAGE, WHOLE
from tests.support.console import FakeLink, group_events, run_console, state_of

PLACES = [place for place in SCREENS if place.name in ("overview", "requests", "rewards")]
COUNT = 160


async def test_the_first_screen_reads_no_text_and_the_list_reads_all_by_page() -> None:
    events = []
    for number in range(COUNT):
        texts = [f"answer {number:03}-{index}" for index in range(4)]
        events += group_events(number, query=f"question {number}", texts=texts)
    link = FakeLink(state_of(*events))
    async with run_console(link=link, places=PLACES, at="overview", size=(190, 48)) as console:
        await console.settle()
        assert console.session.unread_texts.waiting == COUNT - WHOLE
        assert link.text_pages == []
        assert f"question {COUNT - 1}" in console.text()
        await console.press("f2")
        await console.until(lambda: not console.session.unread_texts.waiting)
        assert link.text_pages == [TEXT_PAGE] * 3
        await console.press("end")
        await console.shows("answer 000-0")
        await console.press("slash", *"text~003-2")
        await console.shows(f" 1 of {COUNT} ")
        await console.shows("answer 003-0")
        assert console.session.state == link.state
