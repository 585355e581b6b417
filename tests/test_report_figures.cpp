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
    std::vector<std::string> tensors;
    for (const TensorRecord& t : run.tensors) tensors.push_back(t.name);
    const NamesBelow names(tensors);
    ReportOptions options;
    options.worst = 3;
    const TableBlock table = worst_tensor_table(run, names, options);
    CHECK(names.heading("Worst tensors") == "Worst tensors, below model.transformer.");
    REQUIRE(table.rows.size() == 3);
    for (const std::vector<Cell>& row : table.rows) CHECK(row.front().text.find('.') != std::string::npos);
}
