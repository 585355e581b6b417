#include <ampscope/tools/python/bind.h>

#include <ampscope/formats/block.h>
#include <ampscope/formats/dot.h>
#include <ampscope/sim/backend/cpu/product.h>
#include <ampscope/sim/findings/histogram_recipe.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

namespace amp::python {

namespace {

/// The accumulator of that name. Throws std::invalid_argument if it does not take operands of these formats.
Accumulator accumulator_for(const std::string& name, const FormatSpec& a, const FormatSpec& b) {
    Accumulator acc = accumulator(name);
    for (const FormatSpec& f : {a, b})
        if (!acc.takes(f))
            throw std::invalid_argument("accumulator '" + name + "' multiplies " + std::string(acc.operands) +
                                        ", not " + f.name + ": name the operands' format with a_format, b_format");
    return acc;
}

float dot_of(const Array<float>& a, const Array<float>& b, const FormatSpec& a_format, const FormatSpec& b_format,
             const std::string& name, float c) {
    if (a.size() != b.size()) throw std::invalid_argument("operands differ in size");
    const Accumulator acc = accumulator_for(name, a_format, b_format);
    const nb::gil_scoped_release release;
    return dot(acc, a_format, b_format, span_of(a), span_of(b), c);
}

/// a (batch x m x k) times b (batch x k x n), then the epilogue; FP8 outputs saturate if `saturates`.
Result<float> product_of(const Array<float>& a, const Array<float>& b, const FormatSpec& a_format,
                         const FormatSpec& b_format, const std::string& name, float alpha, const Array<float>& bias,
                         const FormatSpec& out_format, const std::string& rounding, bool saturates, int threads) {
    if (a.ndim() != 3 || b.ndim() != 3 || a.shape(0) != b.shape(0) || a.shape(2) != b.shape(1))
        throw std::invalid_argument("matmul: shapes do not match");
    const Accumulator acc = accumulator_for(name, a_format, b_format);
    if (bias.size() != 0 && bias.size() != b.shape(2))
        throw std::invalid_argument("matmul: bias: expected a number for each column");
    const Epilogue epilogue{.alpha = alpha,
                            .out = out_format,
                            .rounding = parse_name<EpilogueRounding>("epilogue", epilogue_rounding_names, rounding),
                            .overflow =
                                saturates && out_format.bits() <= 8 ? Overflow::saturate_all : Overflow::infinity};
    const bool stored_as_summed = alpha == 1 && bias.size() == 0 && out_format == format("fp32");
    const std::vector<std::size_t> shape = {a.shape(0), a.shape(1), b.shape(2)};
    const cpu::ProductShape sizes{.batch = static_cast<std::int64_t>(shape[0]),
                                  .m = static_cast<std::int64_t>(shape[1]),
                                  .n = static_cast<std::int64_t>(shape[2]),
                                  .k = static_cast<std::int64_t>(a.shape(2))};
    return filled<float>(shape, [&](std::span<float> out) {
        if (stored_as_summed) cpu::product(acc, a_format, b_format, span_of(a), span_of(b), out, sizes, threads);
        else
            cpu::product(acc, a_format, b_format, span_of(a), span_of(b), out, sizes, epilogue, span_of(bias), threads);
    });
}

/// a (m x k) times b (k x n), with m and n lines of scales, one for every `block` numbers along k.
Result<float> scaled_product_of(const Array<float>& a, const Array<float>& b, const Array<float>& a_scales,
                                const Array<float>& b_scales, const FormatSpec& a_format, const FormatSpec& b_format,
                                const FormatSpec& scale_format, std::size_t block, const std::string& name,
                                int threads) {
    const Accumulator acc = accumulator_for(name, a_format, b_format);
    const std::size_t m = a.shape(0), k = a.shape(1), n = b.shape(1), blocks = block == 0 ? 0 : (k + block - 1) / block;
    if (b.shape(0) != k || a_scales.size() != m * blocks || b_scales.size() != n * blocks)
        throw std::invalid_argument("block_matmul: shapes do not match");
    const cpu::ProductShape sizes{
        .m = static_cast<std::int64_t>(m), .n = static_cast<std::int64_t>(n), .k = static_cast<std::int64_t>(k)};
    const cpu::BlockScalesOfProduct scales{.a = span_of(a_scales),
                                           .b = span_of(b_scales),
                                           .format = scale_format,
                                           .block = static_cast<std::int64_t>(block)};
    return filled<float>({m, n}, [&](std::span<float> out) {
        cpu::scaled_product(acc, a_format, b_format, span_of(a), span_of(b), scales, out, sizes, threads);
    });
}

/// The zero point of each block, the code that stands for 0; nothing where blocks have none.
std::optional<Result<float>> zero_points(const BlockScaling& blocks, std::span<const float> x, std::int64_t rows,
                                         std::int64_t columns, const std::vector<std::size_t>& shape) {
    if (blocks.rule != ScaleRule::affine) return std::nullopt;
    const float least = decode(blocks.element, blocks.element.code_mask() / 2 + 1);
    return filled<float>(shape, [&](std::span<float> out) {
        std::ranges::transform(block_ranges(blocks, x, rows, columns), out.begin(),
                               [&](const BlockRange& range) { return least - blocks.scale_of(range).low; });
    });
}

/// A matrix in blocks: its values, the decode scale of each block, and its zero point.
std::tuple<Result<float>, Result<float>, std::optional<Result<float>>>
in_blocks(const std::string& name, const Array<float>& x, std::uint64_t seed) {
    const TensorScaling scaling = tensor_scaling(name);
    const auto rows = static_cast<std::int64_t>(x.shape(0)), columns = static_cast<std::int64_t>(x.shape(1));
    const BlockGrid grid = scaling.blocks.grid(rows, columns);
    const std::vector<std::size_t> of_blocks = {static_cast<std::size_t>(grid.down),
                                                static_cast<std::size_t>(grid.across)};
    std::vector<float> scales;
    auto values = filled<float>({x.shape(0), x.shape(1)}, [&](std::span<float> out) {
        scales = quantize_blocks(
            scaling.blocks, span_of(x), rows, columns, out,
            {.policy = {.rounding = scaling.rounding, .random_bits = scaling.random_bits}, .key = {.seed = seed}});
    });
    return {std::move(values),
            filled<float>(of_blocks, [&](std::span<float> out) { std::ranges::copy(scales, out.begin()); }),
            zero_points(scaling.blocks, span_of(x), rows, columns, of_blocks)};
}

Result<float> out_of_blocks(const std::string& name, const Array<float>& values, const Array<float>& scales) {
    const TensorScaling scaling = tensor_scaling(name);
    const auto rows = static_cast<std::int64_t>(values.shape(0)), columns = static_cast<std::int64_t>(values.shape(1));
    if (scaling.blocks.grid(rows, columns).count() != static_cast<std::int64_t>(scales.size()))
        throw std::invalid_argument("scales: expected one for each block");
    return filled<float>({values.shape(0), values.shape(1)}, [&](std::span<float> out) {
        dequantize_blocks(scaling.blocks, span_of(values), rows, columns, span_of(scales), out);
    });
}

/// (name, operands, evidence, meaning) of the rows of accumulators; those of matrix hardware are said in numbers.
std::vector<std::tuple<std::string_view, std::string_view, std::string_view, std::string>> accumulators() {
    std::vector<std::tuple<std::string_view, std::string_view, std::string_view, std::string>> all;
    for (const HardwareRow& row : hardware_rows) {
        std::string meaning = std::to_string(row.products) + " products a step, ";
        if (row.adds_integers()) meaning += "INT32 sums";
        else if (row.fraction_bits == 0) meaning += "FP32 operations that flush subnormals";
        else
            meaning +=
                std::to_string(row.fraction_bits) + " bits below the largest exponent, sums in " + std::string(row.sum);
        if (!row.acc16.empty()) meaning += "; -acc16 for FP16 sums";
        if (row.scales.group != 0)
            meaning += std::string("; scales in E8M0") + (row.scales.e4m3 ? " or E4M3" : "") + " within the sums";
        if (!row.note.empty()) meaning += "; " + std::string(row.note);
        all.emplace_back(row.name, row.operands, name_of(row.evidence), std::move(meaning));
    }
    const std::string_view definition = name_of(Evidence::definition);
    for (const PlainSum& row : plain_sums) all.emplace_back(row.name, "any", definition, row.meaning);
    for (const FormatSpec& f : formats)
        if (!f.is_scale())
            all.emplace_back(f.name, "any", definition,
                             "a chain of fused multiply-adds, each rounded to " + std::string(f.name));
    return all;
}

/// The accumulator of a call of a library, and where its epilogue rounds.
std::pair<std::string, std::string_view> library_call(const std::string& name, const FormatSpec& a, const FormatSpec& b,
                                                      bool fast, const std::string& split) {
    const LibraryCall& call = find_row("library call", library_calls, name);
    return {accumulator_of(call, a, b, fast, split).name,
            epilogue_rounding_names[static_cast<std::size_t>(call.rounding)]};
}

std::string words_of(const OperandScaling& operand) {
    const auto extent = [](int n) { return n == 0 ? std::string("all") : std::to_string(n); };
    return std::string(operand.element.name) + " " + extent(operand.across) + "x" + extent(operand.along);
}

/// (name, input, weight, gradient, source) of block formats and scaling recipes.
std::vector<std::tuple<std::string_view, std::string, std::string, std::string, std::string_view>> recipes() {
    std::vector<std::tuple<std::string_view, std::string, std::string, std::string, std::string_view>> all;
    for (const BlockSpec& row : block_formats) {
        const std::string words = words_of({.element = row.element, .along = row.columns, .across = row.rows});
        all.emplace_back(row.name, words, words, words, row.source);
    }
    for (const ScalingRecipe& row : scaling_recipes())
        all.emplace_back(row.name, words_of(row.input), words_of(row.weight), words_of(row.gradient), row.source);
    return all;
}

} // namespace

void bind_products(nb::module_& m) {
    m.def("dot", &dot_of, nb::arg("a").noconvert(), nb::arg("b").noconvert(), nb::arg("a_format"), nb::arg("b_format"),
          nb::arg("accumulator"), nb::arg("c"), InEnvironment());
    m.def("matmul", &product_of, nb::arg("a").noconvert(), nb::arg("b").noconvert(), nb::arg("a_format"),
          nb::arg("b_format"), nb::arg("accumulator"), nb::arg("alpha"), nb::arg("bias").noconvert(),
          nb::arg("out_format"), nb::arg("rounding"), nb::arg("saturates"), nb::arg("threads"), InEnvironment());
    m.def("block_matmul", &scaled_product_of, nb::arg("a").noconvert(), nb::arg("b").noconvert(),
          nb::arg("a_scales").noconvert(), nb::arg("b_scales").noconvert(), nb::arg("a_format"), nb::arg("b_format"),
          nb::arg("scale_format"), nb::arg("block"), nb::arg("accumulator"), nb::arg("threads"), InEnvironment());
    m.def("library_call", &library_call, nb::arg("name"), nb::arg("a"), nb::arg("b"), nb::arg("fast"), nb::arg("split"),
          InEnvironment());
    m.def("block_quantize", &in_blocks, nb::arg("scaling"), nb::arg("x").noconvert(), nb::arg("seed"), InEnvironment());
    m.def("block_dequantize", &out_of_blocks, nb::arg("scaling"), nb::arg("values").noconvert(),
          nb::arg("scales").noconvert(), InEnvironment());
    m.def("accumulators", &accumulators, InEnvironment());
    m.def("recipes", &recipes, InEnvironment());
}

} // namespace amp::python
