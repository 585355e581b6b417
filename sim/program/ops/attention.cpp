#include <ampscope/sim/program/graph.h>

#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdexcept>

namespace amp::op {

namespace {

[[noreturn]] void option_error(std::string_view text, std::string_view expected) {
    throw std::invalid_argument(fmt::format("attention {}: expected {}", text, expected));
}

FormatSpec floating_format(std::string_view key, std::string_view value) {
    const FormatSpec f = format(value);
    if (f.is_integer() || f.is_scale() || !f.is_signed)
        throw std::invalid_argument(
            fmt::format("attention: {}={}: expected a floating-point format with signs", key, value));
    return f;
}

/// The factor of "shifted" or "shifted:FACTOR".
double shift_of(std::string_view value) {
    constexpr std::string_view shifted = "shifted";
    if (value == "plain") return 0;
    double factor = 2;
    bool good = value.starts_with(shifted);
    if (good && value != shifted) {
        const char *const begin = value.data() + shifted.size() + 1, *const end = value.data() + value.size();
        good = value[shifted.size()] == ':' && std::from_chars(begin, end, factor).ptr == end && begin != end;
    }
    if (!good || !(factor > 1 && factor <= 100))
        throw std::invalid_argument(fmt::format(
            "attention: max={}: expected plain, shifted or shifted:FACTOR with a factor above 1, up to 100", value));
    return factor;
}

int offset_of(std::string_view value) {
    try {
        return whole_number(value, 0, 120);
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(fmt::format("attention: offset={}: {}", value, error.what()));
    }
}

bool rounded_first(std::string_view value) {
    if (value != "exact" && value != "rounded")
        throw std::invalid_argument(fmt::format("attention: p-sum={}: expected exact or rounded", value));
    return value == "rounded";
}

void set(AttentionOptions& o, std::string_view key, std::string_view value) {
    if (key == "max") o.shift = shift_of(value);
    else if (key == "offset") o.offset = offset_of(value);
    else if (key == "p") o.p = floating_format(key, value);
    else if (key == "ds") o.ds = floating_format(key, value);
    else if (key == "s") o.scores = floating_format(key, value);
    else if (key == "l") o.sums = floating_format(key, value);
    else if (key == "o") o.o = floating_format(key, value);
    else if (key == "steps") o.steps = floating_format(key, value);
    else if (key == "p-sum") o.sums_rounded = rounded_first(value);
    else throw_unknown("key of attention", key, "p, ds, s, l, o, steps, offset, p-sum, max");
}

/// "64x32".
void set_tile(AttentionOptions& o, std::string_view text) {
    const std::size_t by = std::min(text.find('x'), text.size());
    try {
        o.row_tile = whole_number(text.substr(0, by), 1, 1 << 20);
        o.key_tile = whole_number(by < text.size() ? text.substr(by + 1) : "", 1, 1 << 20);
    } catch (const std::invalid_argument&) {
        option_error(text, "a tile of ROWSxKEYS, as in fused:64x64, or key=value");
    }
}

/// A call of q, k and v, in the formats that are chosen, or else that of q.
FusedAttention call_of(Graph& g, const AttentionOptions& options, TensorId q, TensorId k, TensorId v) {
    FusedAttention op;
    op.q = q, op.k = k, op.v = v;
    op.p = options.p.value_or(g[q].format);
    op.ds = options.ds.value_or(g[q].format);
    if (op.p.is_integer()) floating_format("p", op.p.name);
    op.offset = options.offset.value_or(op.p == format("e4m3") ? 8 : 0);
    if (op.offset > op.p.max_exponent())
        throw std::invalid_argument(
            fmt::format("attention: offset={}: 2^{} is beyond {}", op.offset, op.offset, op.p.name));
    op.sums = options.sums;
    op.o = options.o;
    op.sums_rounded = options.sums_rounded;
    op.shift = options.shift;
    op.how.row_tile = options.row_tile;
    op.how.key_tile = options.key_tile;
    op.how.scores = options.scores;
    op.how.by_steps = options.steps.has_value();
    op.how.steps = options.steps.value_or(fp32_format());
    op.how.s_product = g.arithmetic().product(g[q].format, g[k].format, false);
    op.o_product = g.arithmetic().product(op.p, g[v].format, false);
    return op;
}

void check_mask(const Graph& g, TensorId mask, const Shape& scores, bool causal) {
    if (causal) throw std::invalid_argument("attention: expected a mask or a causal one, not both");
    if (g.needs_gradient(mask)) throw std::invalid_argument("attention: a mask has no gradient");
    const Shape shape = g[mask].shape;
    bool fits = shape.size() == scores.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] == 1 || shape[i] == scores[i];
    if (!fits)
        throw std::invalid_argument(fmt::format("attention: expected a mask of ({}) or of extents of 1, got ({})",
                                                fmt::join(scores, ", "), fmt::join(shape, ", ")));
}

} // namespace

std::optional<AttentionOptions> attention_options(std::string_view text) {
    constexpr std::string_view fused = "fused";
    if (text == "plain") return {};
    if (!text.starts_with(fused) || (text.size() > fused.size() && text[fused.size()] != ':'))
        throw_unknown("attention", text, "plain, fused, fused:[ROWSxKEYS,]key=value,...");
    AttentionOptions options;
    if (text == fused) return options;
    read_keys(
        text.substr(fused.size() + 1),
        [&](std::string_view tile, bool first) {
            if (!first) option_error(tile, "key=value");
            set_tile(options, tile);
        },
        [&](std::string_view key, std::string_view value) { set(options, key, value); });
    return options;
}

std::string canonical_attention(std::string_view text) {
    const std::optional<AttentionOptions> options = attention_options(text);
    if (!options) return "plain";
    const AttentionOptions& o = *options;
    const AttentionOptions usual;
    std::vector<std::string> parts;
    const auto say = [&](std::string_view key, const auto& value) {
        parts.push_back(fmt::format("{}={}", key, value));
    };
    if (o.row_tile != usual.row_tile || o.key_tile != usual.key_tile)
        parts.push_back(fmt::format("{}x{}", o.row_tile, o.key_tile));
    if (o.p) say("p", o.p->name);
    if (o.ds) say("ds", o.ds->name);
    for (const auto& [key, f] : {std::pair("s", o.scores), {"l", o.sums}, {"o", o.o}})
        if (f != fp32_format()) say(key, f.name);
    if (o.steps) say("steps", o.steps->name);
    const int follows = o.p == format("e4m3") ? 8 : 0; // without P's format it depends on the operands'
    if (o.offset && !(o.p && o.offset == follows)) say("offset", *o.offset);
    if (o.sums_rounded) say("p-sum", "rounded");
    if (o.shift != 0) parts.push_back(o.shift == 2 ? "max=shifted" : fmt::format("max=shifted:{}", o.shift));
    return parts.empty() ? "fused" : fmt::format("fused:{}", fmt::join(parts, ","));
}

TensorId fused_attention(Graph& g, TensorId q, TensorId k, TensorId v, double scale, bool causal,
                         const AttentionOptions& options, TensorId mask) {
    const Shape x = g[q].shape, y = g[k].shape;
    const bool fits = x.size() == 4 && y.size() == 4 && g[v].shape == y && x[0] == y[0] && x[3] == y[3] &&
                      x[1] % y[1] == 0 && (!causal || x[2] == y[2]);
    if (!fits)
        shape_error(FusedAttention::name,
                    causal ? "B x H x T x D and twice B x G x T x D" : "B x H x Q x D and twice B x G x K x D", g,
                    {q, k, v});
    if (!(scale >= 1e-30 && scale <= 1e30)) // the maximum of a row is that of scores without it
        throw std::invalid_argument(fmt::format("attention: scale {}: expected a number from 1e-30 to 1e30", scale));
    if (mask) check_mask(g, mask, {x[0], x[1], x[2], y[2]}, causal);
    const Graph::Plan plan = g.plan("scaled_dot_product_attention", {q, k, v});
    FusedAttention op = call_of(g, options, plan.operands[0], plan.operands[1], plan.operands[2]);
    op.mask = mask;
    op.how.causal = causal;
    op.how.scale = scale;
    op.out = g.result(FusedAttention::name, x, plan.output);
    op.lse = g.result("logsumexp", {x[0], x[1], x[2]}, fp32_format());
    g.append(op, plan.rule);
    return op.out;
}

void backward(Graph& g, const FusedAttention& op) {
    FusedAttentionBackward b{.q = op.q,
                             .k = op.k,
                             .v = op.v,
                             .out = op.out,
                             .lse = op.lse,
                             .grad_out = g.gradient(op.out),
                             .grad_q = g.new_gradient(op.q),
                             .grad_k = g.new_gradient(op.k),
                             .grad_v = g.new_gradient(op.v),
                             .mask = op.mask,
                             .how = op.how,
                             .ds = op.ds};
    const auto product = [&](const FormatSpec& x, TensorId y) { return g.arithmetic().product(x, g[y].format, true); };
    b.dp_product = product(g[b.grad_out].format, op.v);
    b.dv_product = product(op.ds, b.grad_out);
    b.dk_product = product(op.ds, op.q);
    b.dq_product = product(op.ds, op.k);
    g.append(b, "formats of forward");
    for (const auto& [of, gradient] : {std::pair(op.q, b.grad_q), {op.k, b.grad_k}, {op.v, b.grad_v}})
        if (gradient) g.contribute(of, gradient);
}

} // namespace amp::op
