// Float<spec> in fmt::format: {} gives the shortest decimal that rounds back to the same value in that format, {:x} the
// code in hexadecimal; {:a}, {:e}, {:.3f} and the like format the value as a double.
#pragma once

#include <ampscope/formats/float.h>

#include <fmt/format.h>

namespace amp::detail {

/// The decimal with the fewest significant digits that rounds to x in its format; 9 digits suffice for FP32, so for
/// all.
template <FormatSpec spec>
std::string shortest_decimal(Float<spec> x) {
    const double value{x};
    for (int digits = 1; digits < std::numeric_limits<Float<spec>>::max_digits10; ++digits) {
        const std::string text = fmt::format("{:.{}g}", value, digits);
        if (encode(spec, std::stod(text)) == x.code()) return text;
    }
    return fmt::format("{:.{}g}", value, std::numeric_limits<Float<spec>>::max_digits10);
}

} // namespace amp::detail

template <amp::FormatSpec spec>
struct fmt::formatter<amp::Float<spec>> : fmt::formatter<double> {
    template <class Context>
    constexpr auto parse(Context& context) {
        const auto begin = context.begin();
        plain_ = begin == context.end() || *begin == '}';
        hex_ = !plain_ && *begin == 'x';
        return hex_ ? begin + 1 : fmt::formatter<double>::parse(context);
    }

    template <class Context>
    auto format(amp::Float<spec> x, Context& context) const {
        if (hex_) return fmt::format_to(context.out(), "0x{:0{}x}", x.code(), (spec.bits() + 3) / 4);
        if (plain_ && isfinite(x)) return fmt::format_to(context.out(), "{}", amp::detail::shortest_decimal(x));
        return fmt::formatter<double>::format(double(x), context);
    }

  private:
    bool plain_ = true, hex_ = false;
};
