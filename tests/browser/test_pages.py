# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages in a real browser: nothing is loaded, nothing complained of."""

import datetime
import shutil

import compliance_maker
import pytest
import result_maker
import studies
import trial_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import (
    build as build_module,
    hardware_classes,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import fleet as fleet_page
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

EVEN = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu (primes to 10000)"}
BOTH = {"gzip": result_maker.GZIP, "sysbench_cpu": EVEN}


@pytest.fixture(scope="module", name="browser")
def browser_fixture(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    # Root has no sandbox to run in; a page that breaks out of the renderer is none of ours.
    profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars", profile):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(scope="module", name="one_host")
def one_host_fixture(tmp_path_factory):
    return build(tmp_path_factory.mktemp("one"), [result_maker.result(workloads=BOTH)])


@pytest.fixture(scope="module", name="three_hosts")
def three_hosts_fixture(tmp_path_factory):
    directory = tmp_path_factory.mktemp("three")
    (directory / "broken.json").write_text("{")
    without = {"compared": False, "reason": "this host has no SMT", "shape": (1, 2, 1), "blocks": 5}
    documents = [
        result_maker.result(host="smt-adjacent", workloads=BOTH, blocks=5, noise=0.002),
        result_maker.result(host="smt-split", workloads=BOTH, blocks=5, noise=0.03, seed=3),
        result_maker.result(host="<script>alert(1)</script>", **without),
    ]
    return build(directory, documents)


@pytest.fixture(scope="module", name="long_names")
def long_names_fixture(tmp_path_factory):
    """Names that are long, wide, without a space to break at, and written in other scripts."""
    tall = "a title that is much longer than any that fits beside a chart of a page on a telephone"
    titles = ["W" * 60, tall, "\u6e2c\u91cf" * 40, "\u0642\u064a\u0627\u0633 \u0627\u0644\u0623\u062f\u0627\u0621"]
    workloads = {f"w{number}": {**EVEN, "title": title} for number, title in enumerate(titles)}
    return build(tmp_path_factory.mktemp("long"), [result_maker.result(workloads=workloads, blocks=4, noise=0.01)])


@pytest.fixture(scope="module", name="host_pages")
def host_pages_fixture(tmp_path_factory, one_host, long_names):
    """Pages of one host each: usual ones, curves of streams and of load, and many arms."""
    arms = {"smt_on": 1.0, "smt_off": 0.8, "isolated": 1.02, "mitigations_off": 1.1, "thp_never": 0.97}
    documents = {
        "streams": studies.hp((1, 4, 5, 8, 12), blocks=4),
        "load": studies.sap(blocks=4),
        "arms": result_maker.result(workloads=BOTH, arms=arms, blocks=4, shape=(1, 2, 2)),
    }
    made = [build(tmp_path_factory.mktemp(name), [document]) for name, document in documents.items()]
    return [directory / "index.html" for directory in (one_host, long_names, *made)]


@pytest.fixture(scope="module", name="fleet_of_5000")
def fleet_fixture(tmp_path_factory):
    """The overview alone: one host's row, five thousand times with other figures."""
    result = result_maker.result(workloads=BOTH, blocks=5, shape=(1, 2, 2))
    summary = result_maker.summarised(result, "web.json")
    row = hardware_classes.row(summary, "web.html")
    rows = []
    for number in range(5000):
        slower = 1 - 0.0001 * (number % 50) - (0.2 if number == 4321 else 0)
        workloads = {
            name: {**one, "ratio": one["ratio"] * slower, "candidate_value": one["candidate_value"] * slower}
            for name, one in row["workloads"].items()
        }
        name = f"web{number:04d}"
        named = {"host": name, "page": f"{name}.html", "hardware_class": f"class-{number % 7}"}
        rows.append({**row, **named, "workloads": workloads})
    directory = tmp_path_factory.mktemp("fleet")
    page = fleet_page.render(rows, [], hardware_classes.by_class(rows, 0.01, 0.95))
    (directory / "index.html").write_text(page, encoding="utf-8")
    return directory


@pytest.fixture(scope="module", name="trial_of_four")
def trial_fixture(tmp_path_factory):
    return trial_maker.page(tmp_path_factory.mktemp("trial") / "october")


# Ends the element it stands in, runs, is a template, and is an address that runs.
ATTACK = (
    "</script></textarea><script>window.attacked = 1</script><img src=x onerror='window.attacked = 1'>{{ 7 * 7 }}{% raw"
    " %}javascript:window.attacked=1//"
)
ADDRESS = "javascript:window.attacked=1//"


@pytest.fixture(scope="module", name="hostile_runs")
def hostile_fixture(tmp_path_factory):
    """A host that attacks, alone and among so many that rows are data; another one by its name and its processor."""
    policy = result_maker.policy_result(host=ADDRESS, blocks=5, shape=(1, 2, 2))
    policy["environment"]["cpu_model"] = ATTACK
    others = [result_maker.result(host=f"web{one:02d}", blocks=4, shape=(1, 1, 2), seed=one) for one in range(11)]
    alone = build(tmp_path_factory.mktemp("alone"), [result_maker.hostile(ATTACK)])
    among = build(tmp_path_factory.mktemp("among"), [result_maker.hostile(ATTACK, host=ADDRESS), policy, *others])
    of_hosts = sorted(path for path in among.glob("*.html") if path.stem != "index" and "web" not in path.stem)
    return [alone / "index.html", among / "index.html", *of_hosts]


def build(directory, documents):
    for document in documents:
        result_files.save(directory, document)
    build_module.build(result_files.result_paths(directory), directory)
    return directory


def show(browser, path, width=1100, scheme="light", media=""):
    """Open a page; returns the addresses that it asked for beyond itself."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(path.as_uri())
    messages = [entry["message"] for entry in browser.get_log("performance")]
    asked = [message for message in messages if '"Network.requestWillBeSent"' in message]
    return [message for message in asked if path.as_uri() not in message and '"url":"data:' not in message]


def test_pages_load_nothing_complain_of_nothing_and_show_their_content(browser, three_hosts, judged):
    """By day: the overview of a fleet, a page of one of its hosts, and that of compliance."""
    for page, shown in ((three_hosts / "index.html", "#hosts"), (three_hosts / "smt-split.html", "figure svg")):
        assert show(browser, page) == [] and browser.get_log("browser") == []
        assert browser.find_element(By.CSS_SELECTOR, ".sentence").is_displayed()
        assert browser.find_element(By.CSS_SELECTOR, shown).is_displayed()
    # A table is alive: sorted by whoever clicks.
    show(browser, three_hosts / "index.html")
    head = browser.find_element(By.CSS_SELECTOR, "#hosts thead th")
    head.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    hosts = column(browser, "#hosts", 0)
    assert head.get_attribute("aria-sort") == "ascending"
    assert hosts == ["<script>alert(1)</script>", "smt-adjacent", "smt-split"]
    head.find_element(By.TAG_NAME, "button").send_keys(Keys.SPACE)
    assert head.get_attribute("aria-sort") == "descending" and column(browser, "#hosts", 0) == hosts[::-1]
    assert show(browser, judged) == [] and browser.get_log("browser") == []
    assert shown_hosts(browser) == ["c-drifted", "e-drifted", "d-refused", "b-unknown", "a-compliant"]
    browser.find_element(By.LINK_TEXT, "drifted 2").click()
    WebDriverWait(browser, 10).until(lambda _driver: shown_hosts(browser) == ["c-drifted", "e-drifted"])


@pytest.mark.night(after=1)
@pytest.mark.parametrize(
    ("scheme", "width", "media"), [("light", 390, ""), ("light", 1100, ""), ("dark", 1100, ""), ("dark", 800, "print")]
)
def test_pages_are_quiet_whole_and_readable(browser, one_host, three_hosts, trial_of_four, scheme, width, media):
    for page in sorted([*one_host.glob("*.html"), *three_hosts.glob("*.html"), trial_of_four]):
        assert show(browser, page, width, scheme, media) == []
        assert browser.get_log("browser") == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert contrast(browser, ".sentence") >= 7 and contrast(browser, ".muted, footer p") >= 4.5


@pytest.mark.night
def test_a_host_of_a_trial_runs_nothing_on_its_page(browser, tmp_path):
    page = trial_maker.page(tmp_path / "t", hosts=("web1", "web2", "web3", ATTACK), reason=ATTACK)
    assert show(browser, page) == [] and browser.get_log("browser") == []
    assert browser.execute_script("return window.attacked") is None


def contrast(browser, selector):
    """Contrast of the text of the first such element with the page below it (WCAG 2, 1.4.3)."""
    return browser.execute_script(
        """
        const channels = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map(Number);
        const linear = (value) => { const share = value / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4; };
        const luminance = (colour) => { const [r, g, b] = channels(colour).map(linear);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const element = document.querySelector(arguments[0]);
        const [a, b] = [getComputedStyle(element).color, getComputedStyle(document.body).backgroundColor]
            .map(luminance);
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    """,
        selector,
    )


@pytest.mark.night
def test_nothing_but_tables_is_wider_than_a_telephone(browser, host_pages):
    for page in host_pages:
        show(browser, page, 390)
        browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        wider = browser.execute_script("""
            return [...document.querySelectorAll('body *')].filter((one) => !one.closest('.skip'))
                .filter((one) => !one.parentElement.closest('.wide') && one.getBoundingClientRect().right > 390)
                .map((one) => one.outerHTML.slice(0, 200));
        """)
        assert wider == [] and browser.execute_script("return document.documentElement.scrollWidth") <= 390, page


@pytest.mark.night
@pytest.mark.parametrize("width", [1920, 390])
def test_pictures_fit_the_page_and_no_text_of_theirs_is_cut_off_touched_or_too_small(
    browser, three_hosts, trial_of_four, host_pages, width
):
    for page in (three_hosts / "index.html", trial_of_four, *host_pages):
        show(browser, page, width)
        faults = browser.execute_script("""
            const pictures = [...document.querySelectorAll('figure svg')];
            return pictures.filter((svg) => svg.checkVisibility()).flatMap((svg) => {
                const frame = svg.getBoundingClientRect();
                const shown = [...svg.querySelectorAll('text')]
                    .map((text) => [text.textContent, text.getBoundingClientRect()]);
                const outside = frame.right > innerWidth + 1 ? ['the picture is wider than the page'] : [];
                shown.forEach(([text, box], place) => {
                    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
                        || box.bottom > frame.bottom + 1) outside.push(`${text} is cut off`);
                    // A box of text is as high as a line; letters fill the middle of it.
                    for (const [other, next] of shown.slice(place + 1)) {
                        if (Math.min(box.right, next.right) - Math.max(box.left, next.left) > 1
                            && Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top) > box.height / 3) {
                            outside.push(`${text} and ${other} touch`);
                        }
                    }
                });
                const size = 12 * frame.width / svg.viewBox.baseVal.width;
                return size < 10 || size > 18 ? [...outside, `letters of ${size} pixels`] : outside;
            });
        """)
        assert faults == []


def column(browser, table, number):
    rows = browser.find_elements(By.CSS_SELECTOR, f"{table} tbody tr")
    return [row.find_elements(By.CSS_SELECTOR, "th, td")[number].text for row in rows if row.is_displayed()]


def shown_hosts(browser):
    return [name for name in column(browser, "#hosts", 0) if name]


@pytest.fixture(scope="module", name="judged")
def judged_fixture(tmp_path_factory):
    """The page of compliance of hosts of each status."""

    def of(status, why):
        return compliance_maker.found(status, why, wanted="disabled", hardware_class="x86_64-1s1c2t-adjacent-88e1ab53")

    judged = [
        ("a-compliant", of("compliant", "")),
        ("b-unknown", of("unknown", "no evaluation decides")),
        ("c-drifted", of("drifted", "running: smt/control reads 'on' instead of off; CPUs 8-15 are online")),
        ("d-refused", of("bad_policy", "smt_policy has to be one of auto, enabled, disabled and inherited")),
        ("e-drifted", of("drifted", "the next boot has no nosmt")),
    ]
    page = tmp_path_factory.mktemp("judged") / "compliance.html"
    made = registry.formats()["page"].make(Check(judged, datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)))
    page.write_text(made, "utf-8")
    return page


@pytest.mark.night
def test_a_status_is_chosen_by_a_link_and_stays_in_the_address(browser, judged):
    show(browser, judged)
    link = browser.find_element(By.LINK_TEXT, "drifted 2")
    link.click()
    WebDriverWait(browser, 10).until(lambda _driver: shown_hosts(browser) == ["c-drifted", "e-drifted"])
    assert browser.current_url.endswith("#status=drifted") and link.get_attribute("aria-current") == "true"
    browser.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("nosmt")
    assert shown_hosts(browser) == ["e-drifted"] and browser.find_element(By.ID, "shown").text == "1 of 5"
    assert browser.current_url.endswith("#status=drifted&hosts=nosmt")
    # Whoever is sent the address sees the same, and back shows what was seen before.
    address = browser.current_url
    browser.get("about:blank")
    browser.get(address)
    assert shown_hosts(browser) == ["e-drifted"]
    assert browser.find_element(By.CSS_SELECTOR, "input[type=search]").get_attribute("value") == "nosmt"
    # The same link again shows all of these words.
    browser.find_element(By.LINK_TEXT, "drifted 2").click()
    WebDriverWait(browser, 10).until(lambda driver: driver.current_url.endswith("#hosts=nosmt"))
    assert shown_hosts(browser) == ["e-drifted"]
    browser.get(judged.as_uri() + "#status=bad+policy")
    assert shown_hosts(browser) == ["d-refused"]
    assert browser.get_log("browser") == []


@pytest.mark.night
def test_every_picture_is_read_out_and_every_wide_part_is_reached_by_keyboard(browser, one_host):
    show(browser, one_host / "index.html")
    assert browser.find_elements(By.CSS_SELECTOR, "svg:not([role=img][aria-label])") == []
    assert browser.find_elements(By.CSS_SELECTOR, ".wide:not([tabindex='0'][aria-label])") == []
    heads = browser.execute_script("return [...document.querySelectorAll('th')].map((head) => head.textContent.trim())")
    assert heads and all(heads)
    browser.execute_script("document.body.focus()")
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "To the conclusion"


@pytest.mark.night
def test_five_thousand_hosts_are_filtered_and_sorted(browser, fleet_of_5000):
    assert show(browser, fleet_of_5000 / "index.html") == [] and browser.get_log("browser") == []
    assert len(column(browser, "#hosts", 0)) == 200
    assert browser.find_element(By.ID, "count-hosts").text == "5000 of 5000"
    browser.find_elements(By.CSS_SELECTOR, "#hosts thead button")[2].click()
    assert column(browser, "#hosts", 0)[0] == "web4321"
    browser.find_element(By.ID, "more-hosts").click()
    assert len(column(browser, "#hosts", 0)) == 400
    browser.find_element(By.CSS_SELECTOR, "button[data-words='class-3']").click()
    assert browser.find_element(By.ID, "count-hosts").text == "714 of 5000"
    browser.find_element(By.ID, "filter-hosts").send_keys(" outlier")
    assert "web4321" not in column(browser, "#hosts", 0)
    assert "web4321 (gzip" in browser.find_element(By.CSS_SELECTOR, "[aria-label='What stands out']").text


def test_no_text_of_a_host_runs_or_leads_anywhere(browser, hostile_runs):
    assert len(hostile_runs) == 5
    for page in hostile_runs:
        assert show(browser, page) == []
        browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert browser.get_log("browser") == []
        assert browser.execute_script("return window.attacked") is None
        # What was sent is there to be read: nothing of it became an element, a template or an address.
        assert browser.execute_script("return document.body.textContent.includes('javascript:window.attacked=1')")
        assert "{{ 7 * 7 }}" in browser.page_source
        assert browser.find_elements(By.CSS_SELECTOR, "img, textarea, [onerror], [onclick]") == []
        links = browser.execute_script("return [...document.querySelectorAll('a')].map((one) => one.protocol)")
        assert set(links) <= {"file:"}
        scripts = "[...document.scripts].filter((one) => !one.type).map((one) => one.getAttribute('src'))"
        assert browser.execute_script(f"return {scripts}") == [None]
    browser.get(hostile_runs[1].as_uri())
    links = "[...document.querySelectorAll('#hosts tbody a')].slice(0, 3).map((one) => one.href)"
    for link in browser.execute_script(f"return {links}"):
        browser.get(link)
        assert "here?" in browser.find_element(By.TAG_NAME, "h1").text


@pytest.mark.night
def test_the_first_content_of_many_hosts_waits_for_no_script(browser, fleet_of_5000):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((fleet_of_5000 / "index.html").as_uri())
        assert "hosts" in browser.find_element(By.CSS_SELECTOR, ".sentence, h1").text
        assert len(browser.find_elements(By.CSS_SELECTOR, "#hosts tbody tr")) == 100
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
