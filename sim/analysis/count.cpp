#include <ampscope/sim/analysis/count.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/detail/count_kernel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

namespace amp {

namespace {

Unpacked unpack_integer(bool negative, std::uint64_t magnitude) {
    return {.kind = magnitude == 0 ? Kind::zero : Kind::finite, .sign = negative, .significand = magnitude};
}

double magnitude_of(const Unpacked& x) {
    return x.kind == Kind::finite ? std::ldexp(static_cast<double>(x.significand), x.exponent) : 0;
}

int number_bits(DType dtype) { return info(dtype).bits / info(dtype).numbers(); }

/// The bit of a number that only says its sign, which no statistic of magnitudes tells; 0 if there is none. That of a
/// format whose NaN is -0 says more.
std::uint32_t sign_of(DType dtype) {
    if (info(dtype).kind != NumberKind::format) return 0;
    const FormatSpec f = format(info(dtype).format);
    return f.negatives == Negatives::sign_and_magnitude && !f.nan_is_negative_zero() ? f.sign_mask() : 0;
}

} // namespace

double value_of(const Unpacked& x) {
    switch (x.kind) {
    case Kind::zero: return x.sign ? -0.0 : 0.0;
    case Kind::infinity: return x.sign ? -INFINITY : INFINITY;
    case Kind::nan: return NAN;
    case Kind::finite: break;
    }
    const double magnitude = std::ldexp(static_cast<double>(x.significand), x.exponent);
    return x.sign ? -magnitude : magnitude;
}

std::uint64_t packed_number(std::span<const std::byte> data, std::size_t index, int width) {
    std::uint64_t word = 0;
    if (width % 8 == 0) { // machine and files are little-endian
        std::memcpy(&word, data.data() + index * static_cast<std::size_t>(width) / 8,
                    static_cast<std::size_t>(width) / 8);
        return word;
    }
    const std::size_t first = index * static_cast<std::size_t>(width);
    for (std::size_t i = 0; i < 2 && first / 8 + i < data.size(); ++i)
        word |= std::to_integer<std::uint64_t>(data[first / 8 + i]) << (8 * i);
    return word >> first % 8 & ((std::uint64_t{1} << width) - 1);
}

Unpacked unpack_number(DType dtype, std::uint64_t bits) {
    const DTypeInfo& type = info(dtype);
    switch (type.kind) {
    case NumberKind::format:
    case NumberKind::complex64: return unpack(format(type.format), static_cast<std::uint32_t>(bits));
    case NumberKind::float64: return unpack(std::bit_cast<double>(bits));
    case NumberKind::signed_integer: {
        const int unused = 64 - type.bits;
        const std::int64_t value = static_cast<std::int64_t>(bits << unused) >> unused;
        return unpack_integer(value < 0,
                              value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value));
    }
    case NumberKind::unsigned_integer: return unpack_integer(false, bits);
    case NumberKind::boolean: return unpack_integer(false, std::uint64_t{bits != 0});
    }
    return {};
}

void MagnitudeStatistics::include(double magnitude) {
    if (magnitude == 0) return;
    min_nonzero = min_nonzero == 0 ? magnitude : std::min(min_nonzero, magnitude);
    max = std::max(max, magnitude);
}

void MagnitudeStatistics::merge(const MagnitudeStatistics& later) {
    const FloatEnvironment environment;
    histogram.merge(later.histogram);
    include(later.min_nonzero);
    include(later.max);
    sums += later.sums;
}

void ExactMagnitudes::merge(const ExactMagnitudes& other) {
    rounded.merge(other.rounded);
    absolute += other.absolute;
    squares += other.squares;
}

void ExactMagnitudes::repeat(std::uint64_t times) {
    rounded.histogram.repeat(times);
    absolute = absolute.repeated(times);
    squares = squares.repeated(times);
}

ExactMagnitudes ExactMagnitudes::scaled(int exponent) const {
    const FloatEnvironment environment;
    return {{rounded.histogram.scaled(exponent), std::ldexp(rounded.min_nonzero, exponent),
             std::ldexp(rounded.max, exponent)},
            absolute.scaled(exponent),
            squares.scaled(2 * exponent)};
}

MagnitudeStatistics ExactMagnitudes::statistics() const {
    const FloatEnvironment environment;
    MagnitudeStatistics result = rounded;
    result.sums = {absolute.value(), squares.value()};
    return result;
}

/// Three ways to count: FP32 words by a kernel, types of up to 16 bits by code, all others number by number. Tables are
/// only made when there is enough to count: a checkpoint may have thousands of tensors with a few numbers each.
struct MagnitudeCounter::Tables {
    struct Codes {
        static constexpr std::size_t few = 4096;
        int width;
        std::uint32_t counted;             ///< the bits that count: not the sign of a sign and a magnitude
        bool small_counters;               ///< data have more codes than counters of 32 bits fit into a cache
        std::vector<std::uint16_t> listed; ///< the numbers themselves, while they are few
        std::optional<detail::CodeTable> table{};

        explicit Codes(DType dtype)
            : width(number_bits(dtype)), counted(((1U << width) - 1) & ~sign_of(dtype)),
              small_counters(width == 16 &&
                             (info(dtype).kind != NumberKind::format || format(info(dtype).format).fraction_bits > 7)) {
        } // BF16 has 7

        void add(std::span<const std::byte> block, std::size_t n) {
            if (!table && listed.size() + n <= few) {
                for (std::size_t i = 0; i < n; ++i)
                    listed.push_back(static_cast<std::uint16_t>(packed_number(block, i, width) & counted));
                return;
            }
            make_table();
            table->count(block, n);
        }
        void merge(Codes& other) {
            make_table();
            other.for_each([&](std::size_t code, std::uint64_t times) { table->add(code, times); });
        }
        /// Calls visit(code, count) in ascending order of the codes that occurred.
        template <class Visit>
        void for_each(const Visit& visit) {
            if (table) return table->for_each(visit);
            std::ranges::sort(listed);
            for (std::size_t i = 0, end = 0; i < listed.size(); i = end) {
                while (end < listed.size() && listed[end] == listed[i]) ++end;
                visit(std::size_t{listed[i]}, std::uint64_t{end - i});
            }
        }

      private:
        void make_table() {
            if (table) return;
            table.emplace(width, counted, small_counters);
            for (const std::uint16_t code : listed) table->add(code, 1);
            listed.clear();
        }
    };

    std::unique_ptr<detail::FloatTables> floats;
    std::optional<Codes> codes;
    ExactMagnitudes all; ///< the sums of all blocks, and the rest of what was counted one by one

    /// The sums as the kernels compute them: in 16 lanes.
    MagnitudeSums add_one_by_one(DType dtype, std::span<const std::byte> block, std::size_t n);
};

MagnitudeCounter::MagnitudeCounter(DType dtype) : dtype_(dtype), tables_(std::make_unique<Tables>()) {
    if (number_bits(dtype) <= 16) tables_->codes.emplace(dtype);
}

MagnitudeCounter::~MagnitudeCounter() = default;
MagnitudeCounter::MagnitudeCounter(MagnitudeCounter&&) noexcept = default;

MagnitudeSums MagnitudeCounter::Tables::add_one_by_one(DType dtype, std::span<const std::byte> block, std::size_t n) {
    double absolute[16]{}, squares[16]{};
    for (std::size_t i = 0; i < n; ++i) {
        const Unpacked x = unpack_number(dtype, packed_number(block, i, number_bits(dtype)));
        const double magnitude = magnitude_of(x);
        all.rounded.histogram.add(x);
        all.rounded.include(magnitude);
        absolute[i % 16] += magnitude;
        squares[i % 16] += magnitude * magnitude;
    }
    for (std::size_t half = 8; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) absolute[j] += absolute[j + half], squares[j] += squares[j + half];
    return {absolute[0], squares[0]};
}

void MagnitudeCounter::add(std::span<const std::byte> block) {
    const FloatEnvironment environment;
    constexpr std::size_t few = 1024; // fewer than pay for making and clearing the kernel's tables
    const std::size_t n = block.size() * 8 / static_cast<std::size_t>(number_bits(dtype_));
    if (tables_->codes) {
        tables_->codes->add(block, n);
        return;
    }
    if (info(dtype_).format != "fp32" || n < few) return tables_->all.add(tables_->add_one_by_one(dtype_, block, n));
    if (!tables_->floats) tables_->floats = std::make_unique<detail::FloatTables>();
    tables_->all.add(detail::count_words(*tables_->floats, block));
}

ExactMagnitudes MagnitudeCounter::magnitudes(std::uint64_t repeats) const {
    const FloatEnvironment environment;
    ExactMagnitudes all = tables_->all;
    MagnitudeStatistics& result = all.rounded;
    if (tables_->floats) {
        detail::FloatTables& tables = *tables_->floats;
        tables.flush();
        result.histogram.merge(tables.histogram);
        if (tables.largest != 0) {
            result.include(std::bit_cast<float>(tables.smallest + 1));
            result.include(std::bit_cast<float>(tables.largest));
        }
    }
    all.repeat(repeats);
    if (tables_->codes)
        tables_->codes->for_each([&](std::size_t code, std::uint64_t listed) {
            const std::uint64_t times = listed * repeats;
            const Unpacked x = unpack_number(dtype_, code);
            const double magnitude = magnitude_of(x);
            result.histogram.add(x, times);
            result.include(magnitude);
            all.absolute.add(magnitude, times);
            all.squares.add(magnitude * magnitude, times); // exact: 16 bits at most, squared
        });
    return all;
}

void MagnitudeCounter::merge(const MagnitudeCounter& other) {
    if (tables_->codes) tables_->codes->merge(*other.tables_->codes);
    tables_->all.merge(other.tables_->all);
    if (!other.tables_->floats) return;
    if (!tables_->floats) tables_->floats = std::make_unique<detail::FloatTables>();
    tables_->floats->merge(*other.tables_->floats);
}

} // namespace amp
