// What ampscope.torch.compare measured: ranking, verdict, report, and files that are damaged.
#include "tool.h"

#include <ampscope/sim/findings/step_comparison.h>
#include <ampscope/tools/amp-report/step_comparison.h>

#include <fmt/format.h>

#include <cmath>
#include <limits>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

const Tool report{AMP_REPORT};

Json error(double relative, std::uint64_t nonfinite = 0) {
    return {{"relative", relative}, {"elements", 1000U}, {"nonfinite", nonfinite}};
}

/// A module whose own errors, of output and gradients, are 3, 4 and 12 times a number: together 13 times.
Json module_with(double own, const Json& effect, bool scaled = true) {
    Json m = {{"output", error(0.5)},
              {"output_gradient", error(0.25)},
              {"weight_gradient", nullptr},
              {"own_output", error(3 * own)},
              {"own_input_gradient", error(4 * own)},
              {"own_weight_gradient", error(12 * own)},
              {"effect", effect},
              {"casts", {{"output", {{"nonzero", 1000}, {"underflow", 500}, {"saturated", 0}}}}}};
    if (scaled) {
        m["casts"]["input"] = {{"nonzero", 300}, {"underflow", 20}, {"saturated", 10}};
        m["casts"]["weight"] = {{"nonzero", 100}, {"underflow", 0}, {"saturated", 0}};
    }
    return m;
}

/// A document of these modules in one precision.
Json document(const std::vector<Json>& modules) {
    Json json = {{"tool", "ampscope.torch.compare"},
                 {"schema_version", 1},
                 {"version", "0.1.0"},
                 {"model", "Net"},
                 {"loss", 2.5},
                 {"modules", Json::array()},
                 {"precisions", Json::array()},
                 {"warnings", Json::array()}};
    for (std::size_t i = 0; i < modules.size(); ++i)
        json["modules"].push_back(
            {{"name", fmt::format("h.{}.up", i)}, {"type", "Linear"}, {"calls", 1}, {"parameters", 12}});
    json["precisions"].push_back({{"precision", "fp8-current"},
                                  {"loss", 2.6},
                                  {"loss_scale", 1},
                                  {"steps", 1},
                                  {"gradient", error(0.25)},
                                  {"kept", nullptr},
                                  {"modules", modules}});
    return Json::parse(json.dump()); // whole numbers as a file has them
}

StepComparison read(const Json& json) { return step_comparison_of(json, "x.json"); }

/// Four layers by their effects, and a module that is not cast with scales.
Json of_effects(double a, double b, double c, double d) {
    std::vector<Json> modules;
    for (const double effect : {a, b, c, d}) modules.push_back(module_with(0.01, error(effect)));
    modules.push_back(module_with(0.5, error(0.001), false));
    return document(modules);
}

} // namespace

TEST_CASE("modules are ranked by what they do to the gradient") {
    const StepComparison c = read(of_effects(0.1, 0.3, 0.1, 0.2));
    const PrecisionStep& step = c.precisions.at(0);
    CHECK(step.by_effect);
    std::vector<std::size_t> order;
    double shares = 0;
    for (const RankedModule& r : step.ranking) {
        order.push_back(r.module);
        shares += r.share;
    }
    CHECK(order == std::vector<std::size_t>{1, 3, 0, 2, 4});
    CHECK(shares == doctest::Approx(1));
    CHECK(step.ranking[0].share == doctest::Approx(0.09 / (0.01 + 0.09 + 0.01 + 0.04 + 1e-6)));
    CHECK(step.modules[0].own() == doctest::Approx(0.13));
    CHECK(step.median == 0.1); // the smaller of the two in the middle, of the four that are cast with scales
    CHECK(c.standing_out(step) == std::vector<std::string>{"h.1.up"}); // 0.2 is not more than twice 0.1
    CHECK(step.verdict ==
          "fp8-current: the model's gradient is 25 % away from FP32's. Keep h.1.up in higher precision: "
          "it adds 60.0 % of the squared errors of single modules (h.1.up alone moves it by 30 %; the "
          "median module 10 %).");
}

TEST_CASE("a single layer that is cast with scales is measured by the others") {
    const auto judged = [](double scaled) {
        const StepComparison c = read(document({module_with(0.01, error(0.01), false), module_with(0.01, error(scaled)),
                                                module_with(0.01, error(0.02), false)}));
        return c.precisions.at(0).verdict;
    };
    CHECK(judged(0.2).find("Keep h.1.up in higher precision") != std::string::npos);
    CHECK(judged(0.03).ends_with("No module stands out: h.1.up alone moves it by 3 %, and the median module 2 %."));
    const StepComparison alone = read(document({module_with(0.01, error(0.04))}));
    CHECK(alone.precisions.at(0).verdict.ends_with("No module stands out: h.0.up alone moves it by 4 %."));
}

TEST_CASE("without effects of all, own errors rank") {
    Json json = document({module_with(0.01, nullptr), module_with(0.04, error(9)), module_with(0.01, nullptr)});
    const PrecisionStep step = read(json).precisions.at(0);
    CHECK_FALSE(step.by_effect);
    CHECK(step.ranking.front().error == doctest::Approx(0.52));
    CHECK(contains(step.verdict, "(h.1.up has an own error of 52 %; the median module 13 %)"));
}

TEST_CASE("a verdict says what is equal, zero, infinite, or better once layers are kept") {
    CHECK(contains(read(of_effects(0.1, 0.1, 0.1, 0.1)).precisions[0].verdict,
                   "No module stands out: h.0.up alone moves it by 10 %, and the median module 10 %."));
    Json none = document({module_with(0, nullptr)});
    none["precisions"][0]["gradient"] = error(0);
    CHECK(read(none).precisions[0].verdict ==
          "fp8-current: the model's gradient is 0 % away from FP32's. No module adds an error.");
    Json lost = none;
    lost["loss"] = nullptr;
    CHECK(read(lost).precisions[0].verdict ==
          "fp8-current: FP32's own loss is infinite or NaN, so that its gradients are no measure of others.");
    none["precisions"][0]["gradient"]["relative"] = nullptr;
    CHECK(contains(read(none).precisions[0].verdict, "FP32's gradient is zero, and this one is not."));
    Json small = document({module_with(1e-9, error(1e-9)), module_with(1e-9, error(9e-9))}); // rounding of FP32
    small["precisions"][0]["modules"][0]["casts"] = small["precisions"][0]["modules"][1]["casts"] = Json::object();
    CHECK(contains(read(small).precisions[0].verdict, "No module stands out: h.1.up alone moves it by 9.0e-07 %."));

    Json infinite = of_effects(0.1, 0.1, 0.1, 0.1);
    infinite["precisions"][0]["modules"][2]["effect"] = error(0.1, 7);
    infinite["precisions"][0]["gradient"] = error(0.1, 1);
    const StepComparison c = read(infinite);
    CHECK(c.precisions[0].ranking[0].error == std::numeric_limits<double>::infinity());
    CHECK(c.precisions[0].ranking[0].share == 1);
    CHECK(c.precisions[0].modules[2].nonfinite() == 7);
    CHECK(
        c.precisions[0].verdict ==
        "fp8-current: 1 element of the model's gradient is infinite or NaN. Keep h.2.up in higher precision: it adds "
        "100 % of the squared errors of single modules (h.2.up alone makes elements of it infinite or NaN; the median "
        "module 10 %).");

    Json kept = of_effects(0.1, 0.9, 0.1, 0.5);
    kept["precisions"][0]["kept"] = {{"modules", {"h.1.up", "h.3.up"}}, {"gradient", error(0.03)}};
    CHECK(contains(read(kept).precisions[0].verdict, "Keep h.1.up, h.3.up in higher precision: they add "));
    CHECK(contains(read(kept).precisions[0].verdict, "Without a scaled cast there, the gradient is 3 % away."));
    kept["precisions"][0]["kept"]["modules"] = {"h.1.up"}; // of another judgement
    CHECK_FALSE(contains(read(kept).precisions[0].verdict, "Without a scaled cast"));
}

TEST_CASE("errors as people read them") {
    const std::pair<double, std::string> texts[] = {{0, "0 %"},       {1e-7, "1.0e-05 %"},  {0.00012, "0.012 %"},
                                                    {0.081, "8.1 %"}, {0.994, "99 %"},      {0.996, "100 %"},
                                                    {6.54, "654 %"},  {12345, "1.2e+06 %"}, {std::nan(""), "infinite"}};
    for (const auto& text : texts) CHECK(error_text(text.first) == text.second);
}

TEST_CASE("what is written is read as the same") {
    Json json = of_effects(0.1, 0.3, 0.1, 0.2);
    json["warnings"] = {"h.2.up: its own errors are not known: x"};
    json["precisions"][0]["kept"] = {{"modules", {"h.1.up"}}, {"gradient", error(0.03)}};
    const Json written = json_of(read(json));
    CHECK(json_of(read(written)) == written);
    const Json& m = written["precisions"][0]["modules"][1];
    CHECK(m["underflow"] == 0.05); // of the casts with scales, 20 of 400
    CHECK(m["saturated"] == 0.025);
    CHECK(written["precisions"][0]["modules"][4]["underflow"] == 0.5); // of an output in half precision
    CHECK(m["stands_out"] == true);
    CHECK(written["precisions"][0]["ranking"][0] == "h.1.up");
}

TEST_CASE("a damaged document is refused in a line that names the place") {
    const auto refused = [](const std::function<void(Json&)>& damage, const std::string& says) {
        Json json = of_effects(0.1, 0.3, 0.1, 0.2);
        damage(json);
        CHECK_THROWS_WITH_AS(read(json), ("x.json: is no comparison of a step: " + says).c_str(), FileError);
    };
    refused([](Json& j) { j["tool"] = "other"; }, "it was not saved by ampscope.torch.compare");
    refused([](Json& j) { j["schema_version"] = 2; }, "its schema_version is 2, and this version of ampscope reads 1");
    refused([](Json& j) { j["modules"] = 3; }, "its modules are no list");
    refused([](Json& j) { j["precisions"][0]["modules"].erase(0); },
            "precisions[0]: it has 4 modules, and the model has 5");
    refused([](Json& j) { j["precisions"][0]["modules"][2]["output"]["relative"] = -1; },
            "precisions[0]: modules[2]: its relative error is negative");
    refused([](Json& j) { j["precisions"][0]["modules"][2]["output"]["nonfinite"] = 1001U; },
            "precisions[0]: modules[2]: it has more nonfinite elements than elements");
    refused([](Json& j) { j["precisions"][0]["modules"][2]["casts"]["input"]["underflow"] = 299U; },
            "precisions[0]: modules[2]: its casts count more elements than there are");
    refused([](Json& j) { j["precisions"][0]["modules"][2]["casts"]["sideways"] = Json::object(); },
            "precisions[0]: modules[2]: it casts 'sideways'");
    refused([](Json& j) { j["precisions"][0]["modules"][2]["casts"] = 3; },
            "precisions[0]: modules[2]: its casts are no object");
    refused([](Json& j) { j["precisions"][0]["loss_scale"] = 0; },
            "precisions[0]: its loss_scale is not positive and finite");
    refused([](Json& j) { j["loss"] = std::numeric_limits<double>::infinity(); }, "its loss is not finite");
}

namespace {

/// damaged(json) for each way to remove a value of the document, or to put another in its place.
void for_each_damage(Json& root, Json& at, const std::function<void()>& damaged) {
    if (at.is_structured())
        for (auto& part : at) for_each_damage(root, part, damaged);
    for (const Json& other : {Json(nullptr), Json(-1), Json(1e300), Json("x"), Json::array({1}), Json::object()}) {
        const Json was = at;
        at = other;
        damaged();
        at = was;
    }
    if (!at.is_object()) return;
    const Json was = at;
    for (const auto& part : was.items()) {
        at.erase(part.key());
        damaged();
        at = was;
    }
}

} // namespace

TEST_CASE("no damage gets further than the reader") {
    Json json = document({module_with(0.01, error(0.1)), module_with(0.02, error(0.3))});
    json["precisions"][0]["kept"] = {{"modules", {"h.1.up"}}, {"gradient", error(0.03)}};
    int refused = 0, read_anyway = 0;
    for_each_damage(json, json, [&] {
        try {
            const StepComparison c = read(json);
            ++read_anyway; // a name, say: what is read can be shown and read again
            CHECK_NOTHROW(static_cast<void>(read(json_of(c))));
            CHECK_FALSE(html_of(report_tool::document_of(c, 10)).empty());
        } catch (const FileError& e) {
            ++refused;
            CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
        }
    });
    CHECK(refused > 500);
    CHECK(read_anyway > 50);
}

TEST_CASE("amp-report knows the file by its content, and by itself") {
    const Scratch scratch;
    const fs::path file = scratch / "what.ever";
    write_file(file, of_effects(0.1, 0.3, 0.1, 0.2).dump());
    CHECK(is_step_comparison(file));
    const Outcome o = report(file.string());
    CHECK(o.code == 0);
    CHECK(o.err.empty());
    CHECK(contains(o.out, "Which layers does it hurt?\nOne step of Net in 1 precision beside FP32's."));
    CHECK(contains(o.out, "\nh.1.up    30 %     60.0 %   13 %    50 %      25 %        -   5.00 %   2.50 %\n"));
    CHECK(contains(report(file.string() + " --worst 2").out, "2 of 5 modules (--worst 0 shows all)"));
    CHECK(report.json(file.string())["precisions"][0]["ranking"][0] == "h.1.up");
    CHECK(contains(report(file.string() + " --html - ").out, "<svg"));
    CHECK(contains(report(file.string() + " --markdown - ").out, "| **h.1.up** | 30 % | 60.0 % | 13 % |"));
    report.check_error(file.string() + " " AMP_SAMPLE "/deep_tanh", 2,
                       {file.string() + " compares the modules of one step: it is reported by itself"});

    const std::string whole = read_file(file);
    write_file(file, whole.substr(0, whole.size() / 2));
    report.check_error(file.string(), 1, {file.string() + ": is no JSON object: byte"});
    write_file(file, "{\"tool\": \"ampscope.torch.compare\", \"schema_version\": 7}");
    report.check_error(file.string(), 1,
                       {file.string() + ": is no comparison of a step: its schema_version is 7, and this version"});
    CHECK_FALSE(is_step_comparison(scratch / "nothing"));
    CHECK_FALSE(is_step_comparison(file.parent_path()));
    write_file(file, "{\"tool\": \"amp-report\"}");
    CHECK_FALSE(is_step_comparison(file));
}

TEST_CASE("the picture has a dot for each number, at its place on a logarithmic axis") {
    const double infinity = std::numeric_limits<double>::infinity();
    const DotFigure figure{.title = "T",
                           .subtitle = "S",
                           .x_label = "X",
                           .series = {"one", "two"},
                           .rows = {{"a", {0.01, 1}}, {"b", {std::nan(""), 0.1}}, {"c", {0, infinity}}}};
    const std::string svg = svg_document({figure});
    // The axis runs from 0.01 at 210 to 1 at 772; rows are 18 apart.
    for (const std::string dot :
         {"<circle class=\"bar\" cx=\"210\" cy=\"83\" r=\"4.5\"><title>a, one: 0.01</title>",
          "d=\"M767.5 78.5L776.5 78.5L776.5 87.5L767.5 87.5z\"><title>a, two: 1</title>",
          "d=\"M486.5 96.5L495.5 96.5L495.5 105.5L486.5 105.5z\"><title>b, two: 0.1</title>",
          "<circle class=\"bar\" cx=\"210\" cy=\"119\" r=\"4.5\"><title>c, one: 0</title>",
          "d=\"M767.5 114.5L776.5 114.5L776.5 123.5L767.5 123.5z\"><title>c, two: infinite or NaN"})
        CHECK_MESSAGE(contains(svg, dot), dot << "\n" << svg);
    CHECK(!contains(svg, "b, one"));
    CHECK(description_of(figure) == "T. a: one 0.01, two 1. b: two 0.1. c: one 0, two infinite or NaN.");

    const StepComparison c = read(of_effects(0.1, 0.3, 0.1, 0.2));
    const std::vector<Figure> figures = report_tool::figures_of(c);
    const auto& effects = std::get<DotFigure>(figures.at(0));
    CHECK(effects.series == std::vector<std::string>{"fp8-current"});
    REQUIRE(effects.rows.size() == 5);
    CHECK(effects.rows[1].name == "h.1.up");
    CHECK(effects.rows[1].values == std::vector<double>{0.3});
}
