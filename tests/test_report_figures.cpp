// Heat maps of amp-report: layers of a deep network fold to rows that say what they sum; names stand below what they
// share.
#include <ampscope/tools/amp-report/report.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

using namespace amp;
using namespace amp::report_tool;

namespace {

/// A run with gradients of so many blocks of a network, and of its embedding.
RecordedRun run_of(int blocks, const std::string& prefix) {
    RecordedRun run;
    run.columns = {0, 1};
    run.recorded = {0, 1};
    const auto add = [&](const std::string& layer, std::uint64_t zeroed) {
        MagnitudeHistogram magnitudes;
        magnitudes.rows[0][0] = 100;
        TensorRecord t{.name = prefix + layer + ".weight.grad", .layer = prefix + layer, .counts = {}, .zeroed = {}};
        t.counts.add(magnitudes);
        for (auto& by_column : t.zeroed) by_column = {{zeroed, 100}, {0, 100}};
        run.tensors.push_back(t);
    };
    add("wte", 1);
    for (int i = 0; i < blocks; ++i)
        for (const char* part : {"attn", "mlp"}) add("h." + std::to_string(i) + "." + part, i == 5 ? 50 : 0);
    return run;
}

HeatFigure fp16_zeroes(const RecordedRun& run) { return std::get<HeatFigure>(zeroed_figures(run).front().figure); }
HeatFigure e5m2_zeroes(const RecordedRun& run) { return std::get<HeatFigure>(zeroed_figures(run).back().figure); }

/// The page about this run alone, whose gradients hide that much.
std::string report_on(RecordedRun run, const Censoring& hidden) {
    run.name = run.label = "amp-fp16";
    for (TensorRecord& t : run.tensors) t.censoring = hidden;
    run.magnitudes.rows[0][0] = 100;
    Report report;
    report.findings.runs.push_back(std::move(run));
    compare(report.findings, {});
    return markdown_of(document_of(report, {}));
}

} // namespace

TEST_CASE("a shallow network has a row for each layer") {
    const HeatFigure figure = fp16_zeroes(run_of(6, ""));
    CHECK(figure.title == "What FP16 zeroes, by layer and step");
    CHECK(figure.rows.size() == 13);
    CHECK(figure.rows[12].name == "h.5.mlp, weight grad");
    CHECK(figure.rows[12].note == "25.0 % of all steps");
    CHECK(figure.subtitle.find('*') == std::string::npos);
}

TEST_CASE("48 blocks fold to a row for each of their layers, which says what it sums and where it is worst") {
    const HeatFigure figure = fp16_zeroes(run_of(48, "model.transformer."));
    CHECK(figure.title == "What FP16 zeroes, by layer and step, below model.transformer.");
    CHECK(figure.subtitle.ends_with("; a row with * sums all layers of that name"));
    REQUIRE(figure.rows.size() == 3);
    CHECK(figure.rows[0].name == "wte, weight grad");
    CHECK(figure.rows[1].name == "h.*.attn, weight grad");
    CHECK(figure.rows[1].note ==
          "sum of 48 layers, 0.521 % of all steps; FP16 zeroes most in model.transformer.h.5.attn");
    CHECK(figure.rows[1].values[0] == doctest::Approx(50.0 / 4800));
}

TEST_CASE("of many layers that have no numbers the worst are shown") {
    RecordedRun run = run_of(15, "");
    for (std::size_t i = 0; i < run.tensors.size(); ++i)
        run.tensors[i].layer = std::string(1, static_cast<char>('A' + i)); // 31 letters and signs
    const HeatFigure figure = fp16_zeroes(run);
    CHECK(figure.rows.size() == 24);
    CHECK(figure.subtitle.ends_with("; 24 of 31 rows, those that FP16 zeroes most"));
    CHECK(
        std::ranges::any_of(figure.rows, [](const HeatRow& row) { return row.name == "L, weight grad"; })); // h.5.attn
}

TEST_CASE("the worst tensors stand below what all names share, and never lose their number") {
    const RecordedRun run = run_of(48, "model.transformer.");
    const NamesBelow names(run.tensors, &TensorRecord::name);
    ReportOptions options;
    options.worst = 3;
    const TableBlock table = worst_tensor_table(run, names, options);
    CHECK(names.heading("Worst tensors") == "Worst tensors, below model.transformer.");
    REQUIRE(table.rows.size() == 3);
    for (const std::vector<Cell>& row : table.rows) CHECK(row.front().text.find('.') != std::string::npos);
}

TEST_CASE("rows of a map are those that its own format zeroes most") {
    RecordedRun run = run_of(15, "");
    for (std::size_t i = 0; i < run.tensors.size(); ++i) {
        run.tensors[i].layer = std::string(1, static_cast<char>('A' + i));
        run.tensors[i].zeroed[1] = {{i == 30 ? 90U : 0U, 100}, {0, 100}}; // '_' alone, of which FP16 zeroes nothing
    }
    const HeatFigure figure = e5m2_zeroes(run);
    CHECK(figure.subtitle.ends_with("; 24 of 31 rows, those that E5M2 zeroes most"));
    CHECK(std::ranges::any_of(figure.rows, [](const HeatRow& row) { return row.name == "_, weight grad"; }));
    RecordedRun deep = run_of(48, "");
    for (TensorRecord& t : deep.tensors) t.zeroed[1] = {{t.layer == "h.9.attn" ? 90U : 0U, 100}, {0, 100}};
    CHECK(e5m2_zeroes(deep).rows[1].note.ends_with("E5M2 zeroes most in h.9.attn"));
    CHECK(fp16_zeroes(deep).rows[1].note.ends_with("FP16 zeroes most in h.5.attn"));
}

TEST_CASE("below an unknown answer pictures and tables say that they count what was recorded") {
    const std::string_view said = "counts what was recorded; more may have underflowed before";
    for (const Censoring& hidden : {Censoring{.below_log2 = -25, .zeros = 5}, {.below_log2 = -25, .sums = true}}) {
        const std::string page = report_on(run_of(2, ""), hidden);
        const std::size_t from = page.find("### Gradients"), to = page.find("## Formats");
        REQUIRE(from < to);
        const std::string gradients = page.substr(from, to - from);
        CAPTURE(gradients);
        CHECK(gradients.find("as what underflowed was never recorded: ") != std::string::npos);
        std::size_t figures = 0, sentences = 0;
        for (std::size_t at = 0; (at = gradients.find("\nFigure: ", at)) != std::string::npos; ++at) {
            ++figures;
            const std::string line = gradients.substr(at + 1, gradients.find('\n', at + 1) - at - 1);
            CHECK_MESSAGE(line.find(said) != std::string::npos, line);
        }
        CHECK(figures >= 4);
        for (std::size_t at = 0; (at = gradients.find(said, at)) != std::string::npos; ++at) ++sentences;
        CHECK(sentences == figures + 1); // the table of the worst tensors
        CHECK(gradients.find("fp16: no power of two") == std::string::npos);
        CHECK(gradients.find("fp16: safe") == std::string::npos);
    }
    CHECK(report_on(run_of(2, ""), {}).find(said) == std::string::npos);
}

TEST_CASE("no sentence ends twice") {
    const std::string text = description_of(fp16_zeroes(run_of(48, "model.transformer.")));
    CHECK(text.starts_with("What FP16 zeroes, by layer and step, below model.transformer. wte"));
}

TEST_CASE("departures and scaled casts stand below what their names share") {
    RecordedRun run = run_of(1, "");
    run.label = "fp8";
    for (const char* name : {"model.transformer.h.0.fc", "model.transformer.h.1.fc"}) {
        run.scaled_tensors.push_back({.name = name, .format = "e4m3", .nonzero = 10, .underflow = 1});
        run.departures.push_back(
            {.kind = "error", .tensor = std::string(name) + ".out", .op = "matmul", .step = 1, .error = 1});
    }
    ComparisonGroup group;
    ComparisonRow& row = group.rows.emplace_back();
    row.label = "fp8";
    row.runs = {&run};
    const auto departed = departure_table(group);
    REQUIRE(departed);
    CHECK(departed->rows[0][2].text == "h.0.fc.out");
    CHECK(departed->caption.find("Tensors, below model.transformer.") != std::string::npos);
    const auto scaled = scaled_tensor_table(run, {});
    REQUIRE(scaled);
    CHECK(scaled->rows[1][0].text == "h.1.fc");
    CHECK(scaled->caption.find(", below model.transformer.") != std::string::npos);
    CHECK(scaled->caption.find("..") == std::string::npos);
}

namespace {

/// A number of an element: the first such attribute from `at` on.
double attribute(const std::string& svg, std::size_t at, const std::string& name) {
    return std::stod(svg.substr(svg.find(' ' + name + "=\"", at) + name.size() + 3));
}

struct GuideLine {
    double x, top;
};
struct GuideText {
    double left, right, base;
};

/// The guides of a heat map of 50 columns, and their labels, whose letters are at most 5.8 wide.
void check_guides(const std::vector<std::size_t>& columns) {
    HeatFigure figure{.title = "t",
                      .subtitle = "s",
                      .x_label = "x",
                      .columns = std::vector<std::string>(50, "c"),
                      .rows = {{.name = "r", .note = "", .values = std::vector<double>(50, 0.1)}},
                      .levels = {0.5}};
    for (const std::size_t column : columns) figure.guides.emplace_back(column, "E4M3: zero to the left");
    const std::string svg = svg_document({figure});
    std::vector<GuideLine> lines;
    std::vector<GuideText> texts;
    for (std::size_t at = 0; (at = svg.find("<line class=\"guide\"", at)) != std::string::npos; ++at)
        lines.push_back({attribute(svg, at, "x1"), attribute(svg, at, "y1")});
    for (std::size_t end = 0; (end = svg.find(">E4M3: zero", end)) != std::string::npos; ++end) {
        const std::size_t at = svg.rfind("<text", end);
        const double x = attribute(svg, at, "x"), room = 5.8 * 22;
        const bool starts = svg.substr(at, end - at).find("text-anchor=\"start\"") != std::string::npos;
        texts.push_back({starts ? x : x - room, starts ? x + room : x, attribute(svg, at, "y")});
    }
    REQUIRE(lines.size() == columns.size());
    REQUIRE(texts.size() == columns.size());
    for (const GuideText& text : texts) {
        CHECK(text.left > 0);
        CHECK(text.right < 800);
        for (const GuideLine& line : lines)
            CHECK_FALSE((line.x > text.left && line.x < text.right && line.top < text.base));
    }
}

} // namespace

TEST_CASE("no line of a heat map runs through the label of another, and all labels are in the picture") {
    check_guides({5, 10, 15});
    check_guides({30, 40, 45});
    check_guides({38, 46, 48});
    check_guides({5, 46});
}

TEST_CASE("bars of a single recipe have their name beside them") {
    LineFigure figure{.title = "t",
                      .subtitle = "s",
                      .x_label = "x",
                      .marks = {},
                      .panels = {{.name = "dB", .note = {}, .series = {{.name = "te-nvfp4", .points = {{0, 1}}}}}}};
    CHECK(svg_document({figure}).find(">te-nvfp4</text>") == std::string::npos); // a lone line needs no legend
    figure.panels.front().series.front().apart = true;
    CHECK(svg_document({figure}).find(">te-nvfp4</text>") != std::string::npos);
}

TEST_CASE("a recommended scale outside of the safe window says why") {
    const RateFigure figure{.title = "t",
                            .first_log2 = 0,
                            .limit = 0.001,
                            .curves = {{.format = format("e4m3"),
                                        .underflow = {0.1, 0.01, 0, 0},
                                        .overflow = {0, 0, 0, 0.1},
                                        .window = {{2, 2}},
                                        .recommended = 0}}};
    CHECK(description_of(figure).find("recommended 1, below the safe ones to keep a margin to overflow.") !=
          std::string::npos);
}
