#include <ampscope/sim/analysis/conformance/detail/operands.h>

#include <ampscope/formats/codec.h>

#include <algorithm>
#include <set>

namespace amp::conformance::detail {

namespace {

std::uint32_t any_code(const FormatSpec& f, Draw& draw) { return draw.word() & f.code_mask(); }

/// The i-th tuple of edges where there are fewer tuples than cases; one edge and random codes after the last of them;
/// where there are more, any tuple.
std::vector<std::uint32_t> edge_operands(const Question& q, Draw& draw, std::uint64_t at, std::uint64_t count) {
    const std::vector<std::uint32_t> edges = edge_codes(q.format);
    const std::uint64_t n = operands_of(q);
    std::uint64_t tuples = 1;
    for (std::uint64_t i = 0; i < n; ++i) tuples *= edges.size();
    std::vector<std::uint32_t> codes;
    const std::uint64_t place = draw.below(n);
    for (std::uint64_t i = 0; i < n; ++i) {
        std::uint64_t pick = draw.below(edges.size());
        if (tuples <= count && at < tuples) {
            pick = at % edges.size();
            at /= edges.size();
        }
        const bool edge = tuples > count || at < tuples || i == place;
        codes.push_back(edge ? edges[pick] : any_code(q.format, draw));
    }
    return codes;
}

} // namespace

bool is_finite_code(const FormatSpec& f, std::uint32_t code) {
    const amp::Kind kind = unpack(f, code).kind;
    return kind == amp::Kind::zero || kind == amp::Kind::finite;
}

std::uint32_t finite_code(const FormatSpec& f, Draw& draw) {
    for (;;)
        if (const std::uint32_t code = any_code(f, draw); is_finite_code(f, code)) return code;
}

std::vector<std::uint32_t> edge_codes(const FormatSpec& f) {
    std::set<std::uint32_t> magnitudes;
    const auto add = [&](std::int64_t code) {
        if (code >= 0 && code <= std::int64_t{f.magnitude_mask()}) magnitudes.insert(static_cast<std::uint32_t>(code));
    };
    const auto add_power = [&](int exponent) { // and its neighbours
        if (exponent < f.min_exponent() || exponent > f.max_exponent()) return;
        const auto code =
            (static_cast<std::int64_t>(exponent - f.min_exponent()) << f.fraction_bits) + f.min_normal_code();
        for (const int beside : {-1, 0, 1}) add(code + beside);
    };
    for (const std::int64_t code : {0, 1, 2}) add(code);
    for (const int exponent :
         {f.min_exponent(), f.min_exponent() + f.fraction_bits, f.min_exponent() / 2, -f.precision(), -f.fraction_bits,
          -1, 0, 1, f.fraction_bits, f.precision(), f.max_exponent() / 2, f.max_exponent()})
        add_power(exponent);
    // The largest finite numbers and what lies above them: infinity, NaN with the least and with every fraction bit.
    for (const int beside : {-1, 0, 1, 2}) add(std::int64_t{f.max_code()} + beside);
    if (f.has_nan()) add(f.nan_code());
    add(f.magnitude_mask());
    std::vector<std::uint32_t> codes(magnitudes.begin(), magnitudes.end());
    if (f.is_signed)
        for (const std::uint32_t magnitude : magnitudes) codes.push_back(magnitude | f.sign_mask());
    return codes;
}

std::vector<std::uint32_t> operands(const Question& q, Kind kind, const RandomKey& key, std::uint64_t at,
                                    std::uint64_t count) {
    if (q.op == Op::dot) return dot_operands(q, kind, key, at);
    Draw draw(key, at);
    if (kind == Kind::edges) return edge_operands(q, draw, at, count);
    if (kind == Kind::ties) { // where none was found, the one by which kinds_of() knew that there are some
        const auto found = tie(q, key, at);
        const OperandCodes codes = found ? *found : tie(q, {}, 0).value();
        return {codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(operands_of(q))};
    }
    std::vector<std::uint32_t> codes(operands_of(q));
    if (kind == Kind::all) // the last operand changes first
        for (std::size_t i = codes.size(); i-- > 0; at >>= q.format.bits())
            codes[i] = static_cast<std::uint32_t>(at) & q.format.code_mask();
    else
        for (std::uint32_t& code : codes) code = any_code(q.format, draw);
    return codes;
}

} // namespace amp::conformance::detail
