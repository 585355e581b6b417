// What-if by recipe: that it casts what the trainer casts, with the trainer's own counts; delayed scaling over recorded
// steps; that merged reports are those of one pass; what is said of tensors that a recipe does not cast.
#include "histogram_tool.h"
#include "recorded_files.h"

#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/findings/histogram.h>
#include <ampscope/sim/program/graph.h>
#include <ampscope/sim/program/precision.h>
#include <ampscope/tools/amp-histogram/data_report.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

using namespace amp;
using namespace amp::test;
using Json = nlohmann::ordered_json;

namespace {

/// Numbers over `binades` binades below 1; every 13th is zero.
std::vector<float> numbers_below_one(std::uint64_t count, std::uint32_t seed, std::uint32_t binades) {
    std::vector<float> values;
    for (std::uint64_t i = 0; i < count; ++i) {
        seed = seed * 1664525 + 1013904223;
        const double x = std::ldexp(seed / 0x1p31 - 1, -static_cast<int>((seed >> 8) % binades));
        values.push_back(i % 13 == 3 ? 0.0F : static_cast<float>(x));
    }
    return values;
}

void write_matrices(const fs::path& path, const std::vector<std::pair<TensorEntry, std::vector<float>>>& tensors,
                    const std::map<std::string, std::string>& metadata = {}) {
    std::vector<TensorEntry> entries;
    for (const auto& [entry, values] : tensors) entries.push_back(entry);
    TensorWriter writer = create_tensor_file(path, entries, metadata);
    for (const auto& [entry, values] : tensors) writer.append(std::as_bytes(std::span(values)));
    writer.commit();
}

TensorEntry matrix_entry(const std::string& name, std::vector<std::uint64_t> shape) {
    return {.name = name, .dtype = DType::f32, .shape = std::move(shape)};
}

HistogramOptions options_with(const std::vector<std::string>& recipes) {
    HistogramOptions options;
    options.formats = {format("fp16")};
    for (const std::string& recipe : recipes) options.recipes.push_back(recipe_choice(recipe));
    return options;
}

/// A scaled layer of a recipe, run forwards and backwards on the processor.
struct ScaledLayer {
    static constexpr std::int64_t tokens = 96, inputs = 160, outputs = 64;
    Program program;
    TensorId x, weight, grad;
    std::vector<TensorId> delayed;

    explicit ScaledLayer(const ScalingRecipe& recipe) {
        Graph g(program, precision("scaling=" + std::string(recipe.name)));
        const Graph::Scope scope = g.scope("layer");
        x = g.parameter("x", {tokens, inputs}, {});
        weight = g.parameter("weight", {outputs, inputs}, {});
        grad = g.input("grad", {tokens, outputs});
        g.differentiate(op::sum(g, op::mul(g, op::linear(g, x, weight, {}), grad)));
        for (const DelayedScale& d : g.delayed_scales()) delayed.push_back(d.scale);
    }

    [[nodiscard]] Cpu run() const {
        Cpu cpu(program, 1);
        cpu.counts_scalings = true;
        std::ranges::copy(numbers_below_one(tokens * inputs, 1, 30), cpu[x].begin());
        std::ranges::copy(numbers_below_one(outputs * inputs, 2, 12), cpu[weight].begin());
        std::ranges::copy(numbers_below_one(tokens * outputs, 3, 60), cpu[grad].begin());
        for (const TensorId scale : delayed) cpu[scale][0] = 1;
        replay(cpu, program.forward);
        replay(cpu, program.backward);
        return cpu;
    }

    [[nodiscard]] std::vector<op::Quantize> casts() const {
        std::vector<op::Quantize> all;
        for (const Tape* const tape : {&program.forward, &program.backward})
            for (const Instruction& i : *tape)
                if (const auto* const cast = std::get_if<op::Quantize>(&i.op)) all.push_back(*cast);
        return all;
    }
};

OperandRole role_by_name(const std::string& name) {
    if (name.find("weight") != std::string::npos) return OperandRole::weight;
    return name.find(".x") != std::string::npos ? OperandRole::input : OperandRole::gradient;
}

} // namespace

TEST_CASE("a recipe's effect is what the trainer's casts do, by the trainer's own counts") {
    const Scratch scratch;
    std::size_t casts = 0, below_scales_of_0 = 0;
    for (const ScalingRecipe& recipe : scaling_recipes()) {
        const ScaledLayer layer(recipe);
        const Cpu cpu = layer.run();
        for (const op::Quantize& cast : layer.casts()) {
            CAPTURE(recipe.name);
            CAPTURE(cpu.info(cast.in).name);
            const std::span<const float> in = cpu[cast.in];
            const Shape& shape = cpu.info(cast.in).shape;
            const OperandRole role = role_by_name(cpu.info(cast.in).name);
            // The cast is one of the what-if's, in rows or in columns.
            std::string text;
            for (const char* way : {"", ",column"}) {
                const RecipeChoice choice = recipe_choice(std::string(recipe.name) + way);
                const std::optional<OperandScaling> operand = choice.operand(role);
                if (operand && operand->blocks(*way != 0) == cast.scaling && operand->rounding == cast.rounding &&
                    text.empty())
                    text = choice.text;
            }
            REQUIRE(!text.empty());
            // The tensor as it was before a Hadamard transform, which the what-if makes itself.
            const bool transformed = cpu.info(cast.in).name.find(".hadamard") != std::string::npos;
            if (cast.rounding == Rounding::stochastic || transformed) continue; // other random words; tested below
            write_matrices(
                scratch / "x.safetensors",
                {{matrix_entry("x", {static_cast<std::uint64_t>(shape[0]), static_cast<std::uint64_t>(shape[1])}),
                  {in.begin(), in.end()}}});
            text += "," + std::string(name_of(role));
            const HistogramFindings findings = histogram_findings({scratch / "x.safetensors"}, options_with({text}));
            REQUIRE(findings.tensors.size() == 1);
            const ScaledStatistics& got = findings.tensors[0].recipes[0].statistics;
            const ScalingCounts& want = cpu.scalings()[static_cast<std::size_t>(cast.out.index)];
            CHECK(got.elements == static_cast<std::uint64_t>(want.elements));
            CHECK(got.nonzero == static_cast<std::uint64_t>(want.nonzero));
            const BlockGrid grid = cast.scaling.grid(shape[0], shape[1]);
            double signal = 0, noise = 0;
            std::uint64_t underflow = 0;
            for (std::size_t i = 0; i < in.size(); ++i) {
                const auto block = static_cast<std::size_t>(grid.of(static_cast<std::int64_t>(i)));
                float factor = cpu[cast.scale][block];
                below_scales_of_0 += factor == 0 && std::fabs(cpu[cast.out][i]) == 6;
                if (cast.upper) factor *= cpu[cast.upper][0];
                if (cast.scaling.rule == ScaleRule::nvfp4) factor *= 1.0F / 2688;
                const double back = static_cast<double>(cpu[cast.out][i]) * factor;
                signal += static_cast<double>(in[i]) * in[i];
                noise += (in[i] - back) * (in[i] - back);
                underflow += in[i] != 0 && back == 0 ? 1 : 0;
            }
            CHECK(got.saturated == static_cast<std::uint64_t>(want.saturated));
            CHECK(got.underflow == underflow);
            CHECK(want.underflow == static_cast<std::int64_t>(underflow));
            CHECK(got.signal == doctest::Approx(signal).epsilon(1e-12));
            CHECK(got.noise == doctest::Approx(noise).epsilon(1e-12));
            ++casts;
        }
    }
    CHECK(casts > 30);
    // There TransformerEngine stores the largest number, which is read as 0: underflow, no saturation.
    CHECK(below_scales_of_0 > 0);
}

TEST_CASE("columns of NVFP4's inputs and gradients are transformed first") {
    std::uint64_t rows = 40, columns = 24; // 2 groups of 16 rows, and 8 rows
    SUBCASE("all columns at once") {}
    SUBCASE("a part of the columns at a time") { rows = 20, columns = 3000; }
    const Scratch scratch;
    const std::vector<float> values = numbers_below_one(rows * columns, 9, 20);
    write_matrices(scratch / "x.safetensors", {{matrix_entry("x", {rows, columns}), values}});
    const HistogramFindings findings = histogram_findings(
        {scratch / "x.safetensors"}, options_with({"te-nvfp4,column,input", "te-nvfp4,column,weight"}));
    // The transform is orthogonal: the sum of squares is that of the tensor, up to roundings.
    double squares = 0;
    for (const float x : values) squares += static_cast<double>(x) * x;
    const ScaledStatistics &input = findings.total.recipes[0].statistics,
                           &weight = findings.total.recipes[1].statistics;
    CHECK(input.signal == doctest::Approx(squares).epsilon(1e-6));
    CHECK(input.signal != squares);
    CHECK(weight.signal == doctest::Approx(squares).epsilon(1e-14));
    CHECK(input.nonzero > weight.nonzero); // it spreads numbers over zeros
    // Against the trainer's own op, number by number.
    Program program;
    const auto add = [&](const char* name) {
        const Shape shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
        program.tensors.push_back({.name = name, .shape = shape, .format = format("fp32")});
        return TensorId{static_cast<std::int32_t>(program.tensors.size() - 1)};
    };
    const op::Hadamard transform{add("in"), add("out")};
    Cpu cpu(program, 1);
    std::ranges::copy(values, cpu[transform.in].begin());
    run(cpu, transform);
    const std::span<const float> after = cpu[transform.out];
    write_matrices(scratch / "y.safetensors", {{matrix_entry("x", {rows, columns}), {after.begin(), after.end()}}});
    const HistogramFindings plain =
        histogram_findings({scratch / "y.safetensors"}, options_with({"te-nvfp4,column,weight"}));
    CHECK(plain.total.recipes[0].block ==
          std::pair<std::int64_t, std::int64_t>(16, 16)); // a weight's block, not the input's
    CHECK(input.nonzero == plain.total.recipes[0].statistics.nonzero);
    CHECK(input.signal == doctest::Approx(plain.total.recipes[0].statistics.signal).epsilon(1e-14));
}

TEST_CASE("delayed scaling: the scale of a step follows from the recorded steps before it") {
    const Scratch scratch;
    // Steps that do not lie in the order of their names, with loss scales that are divided out; amax 2, 8, 4, 0.5.
    const std::vector<std::pair<int, float>> steps = {{2, 2.0F}, {3, 8.0F}, {10, 4.0F}, {20, 0.5F}};
    for (const auto& [step, amax] : steps)
        write_matrices(scratch / ("grads-" + std::to_string(step) + ".safetensors"),
                       {{matrix_entry("a.out.grad", {2, 2}), {amax * 256, -amax, 0, 1e-3F}}}, {{"loss_scale", "256"}});
    const auto scales = [&](const std::string& recipe) {
        const HistogramFindings findings = histogram_findings({scratch.folder()}, options_with({recipe}));
        std::map<std::int64_t, float> decode;
        for (const HistogramEntry& t : findings.tensors) {
            const ScaledStatistics& s = t.recipes[0].statistics;
            CHECK(s.least_scale == s.largest_scale);
            decode[*t.step] = s.least_scale;
        }
        CHECK(findings.tensors.front().step == 10); // in the order of the files' names
        return decode;
    };
    using Scales = std::map<std::int64_t, float>;
    // TE: 1, then 1 / (57344 / the largest amax so far); E5M2 for gradients, E4M3 for weights.
    CHECK(scales("te-delayed") ==
          Scales{{2, 1.0F}, {3, 1 / (57344 / 2.0F)}, {10, 1 / (57344 / 8.0F)}, {20, 1 / (57344 / 8.0F)}});
    CHECK(scales("te-delayed,weight") ==
          Scales{{2, 1.0F}, {3, 1 / (448 / 2.0F)}, {10, 1 / (448 / 8.0F)}, {20, 1 / (448 / 8.0F)}});
    // MS-AMP: powers of two, the first from the tensor itself.
    CHECK(scales("ms-amp") == Scales{{2, 0x1p-14F}, {3, 0x1p-14F}, {10, 0x1p-12F}, {20, 0x1p-12F}});
    // Two folders are two histories.
    fs::create_directories(scratch / "other");
    write_matrices(scratch / "other/grads-30.safetensors", {{matrix_entry("a.out.grad", {2, 2}), {1, 2, 3, 4}}});
    const HistogramFindings both = histogram_findings({scratch.folder()}, options_with({"te-delayed"}));
    for (const HistogramEntry& t : both.tensors)
        if (t.step == 30) CHECK(t.recipes[0].statistics.least_scale == 1);
}

TEST_CASE("merged reports of recipes are those of one pass, to the byte") {
    const Scratch scratch;
    std::vector<fs::path> files;
    for (int step = 0; step < 3; ++step) {
        std::vector<float> wild = numbers_below_one(70 * 50, static_cast<std::uint32_t>(step), 50);
        wild[7] = std::nanf("");
        wild[1000] = HUGE_VALF;
        files.push_back(scratch / ("grads-" + std::to_string(step) + ".safetensors"));
        write_matrices(files.back(), {{matrix_entry("a.weight.grad", {70, 50}), wild},
                                      {matrix_entry("a.out.grad", {130, 64}), numbers_below_one(130 * 64, 7, 30)},
                                      {matrix_entry("a.bias.grad", {70}), numbers_below_one(70, 8, 30)}});
    }
    HistogramOptions options =
        options_with({"te-mxfp8", "te-nvfp4,column", "torchao-rowwise", "deepseek,weight", "te-current"});
    options.by = Grouping::layer;
    const auto json_text = [&](const HistogramFindings& findings) {
        std::string text;
        histogram_tool::write_json(findings, options, [&](std::string_view piece) { text += piece; });
        return text;
    };
    std::vector<std::string> once;
    for (const int threads : {1, 2, 5}) {
        options.threads = threads;
        once.push_back(json_text(histogram_findings(files, options)));
        CHECK(once.back() == once.front());
    }
    std::vector<fs::path> reports;
    for (const fs::path& file : files) {
        reports.push_back(file.string() + ".json");
        write_file(reports.back(), json_text(histogram_findings({file}, options)));
    }
    std::ranges::reverse(reports);
    CHECK(json_text(merged_histogram_findings(reports, options)) == once.front());
    // What contradicts itself, or was asked for differently, is refused.
    Json report = Json::parse(read_file(reports.front()));
    report["tensors"][0]["recipes"]["te-mxfp8"]["blocks"] = 1;
    write_file(reports.front(), report.dump());
    const HistogramFindings bad = merged_histogram_findings(reports, options);
    REQUIRE(bad.errors.size() == 1);
    CHECK(bad.errors[0].find("contradict") != std::string::npos);
    options.recipes.pop_back();
    CHECK(merged_histogram_findings(reports, options).errors.size() == 3);
}

TEST_CASE("the total is the sum of its tensors, and its worst blocks are theirs") {
    const HistogramOptions options = options_with({"ocp-mxfp8"});
    const HistogramFindings findings = histogram_findings({sample("deep_tanh")}, options);
    const RecipeEffect& total = findings.total.recipes[0];
    std::uint64_t elements = 0, underflow = 0, blocks = 0;
    std::vector<double> losses;
    for (const HistogramEntry& t : findings.tensors) {
        elements += t.recipes[0].statistics.elements;
        underflow += t.recipes[0].statistics.underflow;
        blocks += t.recipes[0].statistics.blocks;
        for (const RecordedBlock& b : t.recipes[0].worst) {
            losses.push_back(b.noise / b.signal);
            CHECK(b.tensor == t.name);
        }
    }
    std::ranges::sort(losses, std::greater{});
    CHECK(total.statistics.elements == elements);
    CHECK(total.statistics.underflow == underflow);
    CHECK(total.statistics.blocks == blocks);
    CHECK(elements == findings.total.magnitudes.histogram.count());
    REQUIRE(total.worst.size() == 10);
    for (std::size_t i = 0; i < 10; ++i) CHECK(total.worst[i].noise / total.worst[i].signal == losses[i]);
}

TEST_CASE("tensors without elements have no blocks, and say nothing of those of others") {
    const Scratch scratch;
    const std::vector<float> numbers(48, 1.0F);
    for (const bool empty_first : {true, false}) {
        const fs::path file = scratch / (empty_first ? "first.safetensors" : "last.safetensors");
        write_matrices(file,
                       {{matrix_entry(empty_first ? "a" : "z", {4, 0, 3}), {}}, {matrix_entry("m", {2, 24}), numbers}});
        const Json report = Json::parse(run(file.string() + " --recipe te-mxfp8 --json -").out);
        const Json& total = report["total"]["recipes"]["te-mxfp8"];
        CHECK(total["tensors"] == 2);
        CHECK(total["block"] == Json{1, 32});
        CHECK(total["element"] == "e4m3");
        for (const Json& tensor : report["tensors"])
            CHECK(tensor["recipes"]["te-mxfp8"]["block"].is_null() == (tensor["name"] != "m"));
    }
}

TEST_CASE("what amp-histogram says of recipes") {
    const Outcome two = run(sample("deep_tanh") + " --recipe te-mxfp8 --recipe te-nvfp4,column --worst 3");
    CHECK(two.code == 0);
    for (const char* said : {"What recipes would do", "te-mxfp8", "te-nvfp4,column", "Worst blocks", "SQNR",
                             "which no recipe casts", "quantizes no tensor of one dimension"})
        CHECK(two.out.find(said) != std::string::npos);
    const Scratch scratch;
    std::vector<std::pair<TensorEntry, std::vector<float>>> layers;
    for (const char* name : {"model.transformer.h.0.fc", "model.transformer.h.1.fc"})
        layers.emplace_back(matrix_entry(name, {2, 24}), std::vector<float>(48, 0.3F));
    write_matrices(scratch / "layers.safetensors", layers);
    const std::string below = run((scratch / "layers.safetensors").string() + " --recipe te-mxfp8").out;
    for (const char* heading : {"Each tensor, below model.transformer.", "Worst blocks, below model.transformer."})
        CHECK_MESSAGE(below.find(heading) != std::string::npos, below);
    CHECK(below.substr(below.find("Each tensor")).find(".h.") == std::string::npos);
    // No heading of nothing where a recipe casts no tensor.
    write_matrices(scratch / "few.safetensors", {{matrix_entry("m", {2, 24}), std::vector<float>(48, 1.0F)}});
    const Outcome state = run((scratch / "few.safetensors").string() + " --kind state --recipe te-mxfp8");
    CHECK(state.out.find("1 tensor not cast") != std::string::npos);
    for (const char* heading : {"Each tensor", "Worst blocks"}) CHECK(state.out.find(heading) == std::string::npos);
    const std::string nowhere = (scratch / "no.npz").string();
    const Outcome none =
        run((scratch / "few.safetensors").string() + " --kind state --recipe te-mxfp8 --blocks " + nowhere);
    CHECK(none.code == 1);
    CHECK(none.err == "amp-histogram: " + nowhere + ": cannot be written: no recipe casts any of these tensors\n");
    CHECK(!fs::exists(nowhere));
    constexpr std::array doubles = {1e300, 1.0, -1e-300, 2.0};
    TensorWriter writer =
        create_tensor_file(scratch / "wide.safetensors", {{.name = "w", .dtype = DType::f64, .shape = {4}}}, {});
    writer.append(std::as_bytes(std::span(doubles)));
    writer.commit();
    const Outcome wide = run((scratch / "wide.safetensors").string() + " --recipe te-current");
    CHECK(wide.err == "amp-histogram: warning: 1 of the numbers are infinite and 1 are zero in FP32, in which recipes "
                      "scale: for recipes they count as such\n");
    const std::string archive = (scratch / "blocks.npz").string();
    const Outcome blocks = run(sample("digits_cnn") + " --recipe te-block --json - --blocks " + archive);
    CHECK(blocks.code == 0);
    const Json report = Json::parse(blocks.out);
    const auto file = open_tensor_file(archive);
    for (const Json& tensor : report["tensors"]) {
        const Json& effect = tensor["recipes"]["te-block"];
        std::map<std::string, std::vector<std::uint64_t>> counts;
        for (std::size_t i = 0; i < file->tensors().size(); ++i)
            for (const char* field : {"underflow", "elements", "lost"}) {
                const std::string name = fmt::format("{}@{}/te-block/{}", tensor["name"].get<std::string>(),
                                                     tensor["step"].get<int>(), field);
                if (file->tensors()[i].name != name) continue;
                const std::string bytes = tensor_bytes(*file, i);
                counts[field].resize(bytes.size() / 8);
                std::memcpy(counts[field].data(), bytes.data(), bytes.size());
            }
        for (const auto& [field, values] : counts) {
            CHECK(values.size() == effect["blocks"].get<std::size_t>());
            CHECK(std::accumulate(values.begin(), values.end(), std::uint64_t{0}) ==
                  effect[field].get<std::uint64_t>());
        }
        CHECK(counts.size() == 3);
    }
    CHECK(run(sample("digits_cnn") + " --blocks x.npz").code == 2);
    CHECK(run(sample("digits_cnn") + " --recipe nothing")
              .err.find("unknown scaling recipe 'nothing'; known: te-delayed") != std::string::npos);
    const Outcome csv = run(sample("digits_cnn") + " --recipe te-nvfp4,column --csv -");
    CHECK(csv.out.find(",\"te-nvfp4,column\",blocks,underflow,") != std::string::npos);
}
