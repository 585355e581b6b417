"""A comparison whose losses are known, and whether its page's charts answer the mouse with them: for tests/browser."""
import json
import math
import re
import subprocess


def line_of(line):
    return json.dumps(line) + "\n"


def known_loss(precision, seed, step):
    """Of comparison_page(): from 4 down by a factor of 26, and BF16's a little above FP32's."""
    return 4 * (step + 1) ** -0.8 + 0.01 * seed + (0.0001 * ((seed + step) % 3) if precision == "amp-bf16" else 0)


def comparison_page(tool, folder):
    """Two precisions with three seeds each, 60 steps, a deep network, and a recorder that warned of the loop."""
    for precision in ("fp32", "amp-bf16"):
        for seed in range(3):
            run = folder / "runs" / f"{precision}-{seed}"
            run.mkdir(parents=True)
            (run / "run.json").write_text(json.dumps({"schema_version": 2, "model": {"name": "net"}, "seed": seed,
                                                      "data": {"name": "text"}, "precision": {"name": precision}}))
            (run / "metrics.jsonl").write_text("".join(
                line_of({"step": step, "loss": known_loss(precision, seed, step)}) for step in range(60)))
            layers = [f"model.transformer.h.{i}.{part}.weight.grad"
                      for i in range(13) for part in ("attn.c_proj", "mlp.c_fc")]
            (run / "histograms.jsonl").write_text("".join(
                line_of({"step": step, "tensor": name, "kind": "weight_gradient", "loss_scale": 1.0, "format": "fp32",
                         "zero": 0, "nan": 0, "inf": 0, "mantissa_classes": 28, "rows": {"-30": [1], "-8": [3]}})
                for step in (0, 30) for name in layers))
            if precision == "amp-bf16" and seed == 0:
                warning = "train.py:42: clip_grad_norm_() before unscale_(): it clips the scaled gradients"
                (run / "result.json").write_text(json.dumps({"schema_version": 2, "warnings": [warning]}))
    page = folder / "comparison.html"
    subprocess.run([tool, folder / "runs", "--html", page], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return page


class Mouse:
    """Points at places of the figure whose title begins with `title`, in the figure's own coordinates."""

    def __init__(self, browser, title):
        self.browser = browser
        self.svg = ("[...document.querySelectorAll('figure svg')]"
                    f".find(s => s.querySelector('title').textContent.startsWith({json.dumps(title)}))")
        self.value("(svg.scrollIntoView({block: 'center'}), true)")
        # What is shown beside the pointer goes when the page scrolls, and that is said with the next picture.
        self.browser.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def value(self, expression):
        return self.browser.value(f"(() => {{ const svg = {self.svg}; return {expression}; }})()")

    def place(self, x, y):
        at = self.value(f"[new DOMPoint({x}, {y}).matrixTransform(svg.getScreenCTM())].map(p => [p.x, p.y])[0]")
        return {"x": at[0], "y": at[1]}

    def middle(self, selector):
        return self.place(*self.value(f"[svg.querySelector({json.dumps(selector)}).getBBox()]"
                                      ".map(b => [b.x + b.width / 2, b.y + b.height / 2])[0]"))

    def move(self, place):
        """What is shown beside the pointer, in lines."""
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        return self.value("[document.querySelector('.tip')].filter(tip => !tip.hidden)"
                          ".flatMap(tip => [...tip.childNodes].map(line => line.textContent))")

    def click(self, place):
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)


def curve(path):
    """The points of path data, as pairs."""
    return [tuple(map(float, point.split())) for point in re.findall(r"[ML]([\d.]+ [\d.]+)", path)]


def chart_faults(browser, page):
    """Yields where the charts of comparison_page() do not do what they should."""
    browser.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    browser.load(page.resolve().as_uri())
    loss, step = Mouse(browser, "Loss:"), 30
    x = 88 + step / 59 * (772 - 88)
    y = loss.value("svg.querySelector('.series-0').getBBox().y + 40")
    known = {p: f"{p}: {float(f'{known_loss(p, 0, step):.4g}'):g}" for p in ("fp32", "amp-bf16")}
    order = loss.value("[...svg.querySelectorAll('[data-n]')].map(g => g.dataset.n)")
    wanted = [f"step {step}", *(known[p] for p in order)]
    if (shown := loss.move(loss.place(x + 2, y))) != wanted:
        yield f"at step {step} the chart shows {shown}, not {wanted}"
    hair = loss.value("svg.querySelector('.hair').getAttribute('d') ?? ''")
    if not re.match(rf"M{x:.4f}\d* ", hair):
        yield f"the cross-hair of step {step} is {hair}, not at {x}"
    key, line = f"[data-key='{order.index('amp-bf16')}']", f"[data-k='{order.index('amp-bf16')}']"
    loss.click(loss.middle(key))
    if loss.value(f"getComputedStyle(svg.querySelector({json.dumps(line)})).display") != "none":
        yield "a click on the legend does not hide its line"
    if (shown := loss.move(loss.place(x, y))) != [f"step {step}", known["fp32"]]:
        yield f"of a hidden line the chart shows {shown}"
    loss.value(f"(svg.querySelector({json.dumps(key)}).focus(), true)")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter")
    if loss.value(f"getComputedStyle(svg.querySelector({json.dumps(line)})).display") == "none":
        yield "Enter on the legend does not show its line again"

    fp32 = f"[data-k='{order.index('fp32')}'] path"
    path = f"svg.querySelector({json.dumps(fp32)}).getAttribute('d')"
    linear, button = loss.value(path), "svg.closest('figure').querySelector('.axis-switch')"
    loss.value(f"({button}.click(), true)")
    heights = [(math.log(known_loss("fp32", 0, i)), at[1]) for i, at in enumerate(curve(loss.value(path)))]
    slope = (heights[-1][1] - heights[0][1]) / (heights[-1][0] - heights[0][0])
    if len(heights) != 60 or slope >= 0:
        yield f"the logarithmic axis shows {len(heights)} points, by a slope of {slope}"
    for log, height in heights:
        if abs(heights[0][1] + slope * (log - heights[0][0]) - height) > 0.1:
            yield f"on the logarithmic axis a loss of {math.exp(log)} lies at {height}"
    labels = loss.value("[...svg.querySelectorAll('[data-ticks] text')].map(t => t.textContent)")
    if not {"0.2", "0.5", "1", "2"} <= set(labels):
        yield f"the logarithmic axis says {labels}"
    loss.value(f"({button}.click(), true)")
    if loss.value(path) != linear:
        yield "the linear axis does not come back"

    rates = Mouse(browser, "What a loss scale")
    shown = rates.move(rates.middle("[data-k=underflow] path"))
    if not (shown and re.fullmatch(r"loss scale 2\^\d+|loss scale 2\^0", shown[0]) and
            any(re.fullmatch(r"underflow: [\d.e-]+ %", line) for line in shown)):
        yield f"rates over the loss scale are shown as {shown}"
    heat = Mouse(browser, "What FP16 zeroes, by layer and step, below model.transformer.")
    y = heat.value("svg.querySelector('[data-cells] rect').getBBox().y + 5")
    shown = heat.move(heat.place(210 + 0.75 * (772 - 210), y))  # the second of two columns
    if shown[1:] != ["step 30: 25 %"] or not shown[0].startswith("h.*.attn.c_proj, weight grad: sum of 13 layers"):
        yield f"a cell of a heat map is shown as {shown}"
