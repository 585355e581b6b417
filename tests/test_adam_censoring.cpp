// What records of small range hide of Adam: that what eps decides is unknown then.
#include "censored_runs.h"

#include <ampscope/sim/findings/adam.h>
#include <ampscope/sim/findings/comparison.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace amp;
using namespace amp::test;

namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("what eps decides is unknown where gradients were recorded as zero, or are sums of terms that were") {
    const Scratch scratch;
    const auto asked = [&](const char* name, const std::string& precision, const std::vector<float>& values) {
        const fs::path run = run_with(scratch / name, precision, "fp32", 1, values);
        save(run / "gradients/step_000002.safetensors", {{"a.weight.grad", values}}, {{"step", "2"}});
        fs::remove(run / "histograms.jsonl"); // the files will be counted
        return std::pair(adam_findings(run, standard_adam_options()), comparison_findings({run}, {}));
    };
    const std::vector<float> exact = normal_gradients(-20), large(4000, 0.5F);
    const auto [known, page] = asked("fp32", fp32, exact);
    CHECK(known.known() == Known::exact);
    CHECK(known.total.least_log2 ==
          std::ilogb(*std::ranges::min_element(exact, {}, [](float x) { return std::abs(x); })));
    CHECK(known.advice.starts_with("Advice: eps 1e-08 decides "));
    CHECK(page.answers[2].state == ShortAnswer::State::settled);
    for (const auto& [name, values, hidden] :
         {std::tuple("flushed", held(exact, "fp16", 1), "magnitudes up to 2^-25 were held as zero"),
          {"sums", large, "gradients of weights are sums, whose terms were held as zero up to 2^-25"},
          {"nothing", std::vector<float>(100, 0.0F), "100 % of the 100 elements of tensors held so are exact"}}) {
        const std::string of = name; // clang 14 lets no lambda, so no message, refer to a structured binding
        CAPTURE(of);
        const auto [open, verdict] = asked(name, amp_fp16, values);
        CHECK(open.known() == Known::unknown);
        CHECK(open.advice.starts_with("Advice: what eps decides is unknown, as what underflowed was never recorded: "));
        CHECK(contains(open.advice, "To find out, record a few steps of the same training in FP32"));
        CHECK(verdict.answers[2].words == "unknown");
        CHECK(verdict.verdict[2].starts_with("Adam: what eps decides is unknown, as what underflowed"));
        for (const std::string& text : {open.advice, verdict.answers[2].reason, verdict.verdict[2]})
            CHECK(contains(text, hidden));
    }
    std::vector<float> few = large; // so few zeros change nothing, whatever they were
    few.push_back(0);
    CHECK(adam_findings(save(scratch / "few.safetensors", {{"a.weight.grad", few}}), standard_adam_options()).known() ==
          Known::exact);
}
