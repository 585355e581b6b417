#include <ampscope/sim/analysis/cast_count.h>

#include <ampscope/sim/analysis/count.h>

#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/environment.h>
#include <ampscope/formats/instruction_set.h>

#include <cmath>
#include <cstring>

namespace amp {

namespace {

/// Elements of more than 16 bits, as integers of type Word that are ordered as the magnitudes are.
template <class Word>
struct Source {
    DType dtype;
    Word sign_bit; ///< 0 for unsigned integers
    bool two_complement;
    Word max_finite; ///< the largest finite magnitude

    explicit Source(DType type) : dtype(type) {
        constexpr Word top = Word{1} << (8 * sizeof(Word) - 1);
        const NumberKind kind = info(type).kind;
        two_complement = kind == NumberKind::signed_integer;
        sign_bit = kind == NumberKind::unsigned_integer ? 0 : top;
        max_finite = two_complement                         ? top
                     : kind == NumberKind::unsigned_integer ? ~Word{0}
                     : sizeof(Word) == 4                    ? Word{0x7f7fffff}
                                                            : static_cast<Word>(0x7fefffffffffffff);
    }
    [[nodiscard]] Unpacked number(Word magnitude, bool sign) const {
        if (two_complement || sign_bit == 0) return {.kind = Kind::finite, .sign = sign, .significand = magnitude};
        return unpack_number(dtype, magnitude | (sign ? sign_bit : 0));
    }
};

/// For one cast: the smallest magnitudes, by sign, that reach each class above underflow.
template <class Word>
struct Boundaries {
    Word first[2][3];
};

template <class Word>
Boundaries<Word> find_boundaries(const Cast& cast, const Source<Word>& source) {
    Boundaries<Word> result{};
    for (const bool sign : {false, true})
        for (std::size_t c = 0; c < 3; ++c) {
            // Bisection: the smallest magnitude in [1, max_finite] of class c + 1 or above; 0 if there is none.
            Word low = 1, high = source.max_finite;
            const auto reaches = [&](Word m) {
                return static_cast<std::size_t>(classify(cast, source.number(m, sign))) > c;
            };
            if (!reaches(high)) continue;
            while (low < high) {
                const Word middle = low + (high - low) / 2;
                if (reaches(middle)) high = middle;
                else low = middle + 1;
            }
            result.first[sign][c] = low;
        }
    return result;
}

/// counts[0]: non-zero finite elements; counts[1 ... 3]: those that reach each boundary.
template <class Word>
struct CompareKernel {
    AMPSCOPE_KERNEL void run(const Word* words, std::size_t n, const Source<Word>* from,
                             const Boundaries<Word>* boundaries, std::uint64_t* counts) {
        const Source<Word> source = *from;
        Word sums[4]{};
        Word bound[2][3]; // less one, so that 0 (none) becomes a boundary that no finite magnitude exceeds
        for (int s = 0; s < 2; ++s)
            for (int c = 0; c < 3; ++c)
                bound[s][c] =
                    boundaries->first[s][c] == 0 ? source.max_finite : static_cast<Word>(boundaries->first[s][c] - 1);
        for (std::size_t i = 0; i < n; ++i) {
            const bool negative = (words[i] & source.sign_bit) != 0;
            const Word magnitude = source.two_complement ? (negative ? static_cast<Word>(Word{0} - words[i]) : words[i])
                                                         : static_cast<Word>(words[i] & ~source.sign_bit);
            const Word finite = magnitude <= source.max_finite ? magnitude : Word{0};
            sums[0] += finite != 0;
            for (int c = 0; c < 3; ++c) sums[c + 1] += finite > (negative ? bound[1][c] : bound[0][c]);
        }
        for (int c = 0; c < 4; ++c) counts[c] += sums[c];
    }
};

constexpr std::size_t block_numbers = 4096; // small enough for the first-level cache while every cast reads them

template <class Word>
std::vector<CastCounts> count_by_boundaries(const TensorFile& file, std::size_t tensor, std::span<const Cast> casts,
                                            int threads, const Progress& progress) {
    const DistinctElements elements(file, tensor);
    const DTypeInfo& type = info(elements.tensors()[0].dtype);
    const Source<Word> source(type.dtype);
    std::vector<Boundaries<Word>> boundaries;
    for (const Cast& cast : casts) boundaries.push_back(find_boundaries(cast, source));
    struct Worker {
        std::vector<std::array<std::uint64_t, 4>> counts;
    };
    const auto workers = detail::for_each_block<Worker>(
        elements, 0, bytes_of(type.dtype, block_numbers), threads, progress,
        [&] { return std::make_unique<Worker>(Worker{std::vector<std::array<std::uint64_t, 4>>(casts.size())}); },
        [&](Worker& worker, std::uint64_t, std::span<const std::byte> bytes) {
            Word words[block_numbers];
            std::memcpy(words, bytes.data(), bytes.size());
            for (std::size_t i = 0; i < casts.size(); ++i) {
                std::uint64_t counts[4]{};
                dispatch<CompareKernel<Word>>(
                    best_instruction_set(), static_cast<const Word*>(words), bytes.size() / sizeof(Word), &source,
                    static_cast<const Boundaries<Word>*>(&boundaries[i]), static_cast<std::uint64_t*>(counts));
                for (std::size_t c = 0; c < 4; ++c) worker.counts[i][c] += counts[c];
            }
        });
    std::vector<CastCounts> result(casts.size());
    for (std::size_t i = 0; i < casts.size(); ++i) {
        std::array<std::uint64_t, 4> n{};
        for (const auto& worker : workers)
            for (std::size_t c = 0; c < 4; ++c) n[c] += worker->counts[i][c];
        const auto count = [&](std::uint64_t x) { return static_cast<double>(x * elements.repeats()); };
        result[i] = {count(n[0] - n[1]), count(n[1] - n[2]), count(n[2] - n[3]), count(n[3]), false};
    }
    return result;
}

/// Sums of probabilities by class, in units of 2^-32: exact, so their order does not matter.
using Weights = std::array<Uint128, 4>;

void add_element(const Cast& cast, const Unpacked& x, std::uint64_t times, Weights& weights) {
    if (x.kind != Kind::finite) return;
    const Uint128 whole = Uint128{times} << 32;
    const auto slot = [](CastClass c) { return static_cast<std::size_t>(c); };
    const auto last = static_cast<std::uint32_t>((std::uint64_t{1} << cast.policy.random_bits) - 1);
    const CastClass down = classify(cast, x, last), up = classify(cast, x, 0);
    if (cast.policy.rounding != Rounding::stochastic || down == up) {
        weights[slot(up)] += whole;
        return;
    }
    std::uint32_t low = 0, high = last; // random words below `high` round up: the probability is high / 2^random_bits
    while (low < high) {
        const std::uint32_t middle = low + (high - low) / 2;
        if (classify(cast, x, middle) == down) high = middle;
        else low = middle + 1;
    }
    const Uint128 part = (Uint128{high} << (32 - cast.policy.random_bits)) * times;
    weights[slot(up)] += part;
    weights[slot(down)] += whole - part;
}

CastCounts to_counts(const Weights& weights, bool expected) {
    const auto value = [&](CastClass c) {
        return std::ldexp(static_cast<double>(weights[static_cast<std::size_t>(c)]), -32);
    };
    return {value(CastClass::underflow), value(CastClass::subnormal), value(CastClass::normal),
            value(CastClass::overflow), expected};
}

/// Counts number by number; types of up to 16 bits by code, so that each code is classified once.
std::vector<CastCounts> count_one_by_one(const TensorFile& file, std::size_t tensor, std::span<const Cast> casts,
                                         int threads, const Progress& progress) {
    const DistinctElements elements(file, tensor);
    const DTypeInfo& type = info(elements.tensors()[0].dtype);
    const int width = type.number_bits();
    struct Worker {
        std::vector<std::uint64_t> codes;
        std::vector<Weights> weights;
    };
    const auto workers = detail::for_each_block<Worker>(
        elements, 0, bytes_of(type.dtype, block_numbers), threads, progress,
        [&] {
            return std::make_unique<Worker>(
                Worker{std::vector<std::uint64_t>(width <= 16 ? std::size_t{1} << width : 0),
                       std::vector<Weights>(casts.size())});
        },
        [&](Worker& worker, std::uint64_t, std::span<const std::byte> bytes) {
            for_each_number(type.dtype, bytes, [&](std::size_t, std::uint64_t code) {
                if (width <= 16) ++worker.codes[code];
                else
                    for (std::size_t k = 0; k < casts.size(); ++k)
                        add_element(casts[k], unpack_number(type.dtype, code), 1, worker.weights[k]);
            });
        });
    std::vector<CastCounts> result;
    for (std::size_t k = 0; k < casts.size(); ++k) {
        Weights total{};
        for (const auto& worker : workers) {
            for (std::size_t c = 0; c < 4; ++c) total[c] += worker->weights[k][c];
            for (std::size_t code = 0; code < worker->codes.size(); ++code)
                if (worker->codes[code] != 0)
                    add_element(casts[k], unpack_number(type.dtype, code), worker->codes[code], total);
        }
        for (Uint128& weight : total) weight *= elements.repeats();
        result.push_back(to_counts(total, casts[k].policy.rounding == Rounding::stochastic));
    }
    return result;
}

} // namespace

CastClass classify(const Cast& cast, const Unpacked& x, std::uint32_t random) {
    if (x.subnormal && cast.policy.flushes_input()) return CastClass::underflow;
    const Unpacked y = scaled(x, cast.scale, cast.recorded_scale);
    Flags flags;
    const std::uint32_t code = round_pack(cast.format, y.sign, y.exponent, y.significand, cast.policy, random, flags);
    if (flags.test(Flags::overflow)) return CastClass::overflow;
    const std::uint32_t magnitude = cast.format.magnitude_of(code);
    if (magnitude == 0) return CastClass::underflow;
    return magnitude < cast.format.min_normal_code() ? CastClass::subnormal : CastClass::normal;
}

void CastCounts::merge(const CastCounts& other) {
    const FloatEnvironment environment;
    underflow += other.underflow;
    subnormal += other.subnormal;
    normal += other.normal;
    overflow += other.overflow;
    expected = expected || other.expected;
}

std::vector<CastCounts> count_casts(const TensorFile& file, std::size_t tensor, std::span<const Cast> casts,
                                    int threads, const Progress& progress) {
    const FloatEnvironment environment;
    const DTypeInfo& type = info(file.tensors()[tensor].dtype);
    const bool random =
        std::ranges::any_of(casts, [](const Cast& c) { return c.policy.rounding == Rounding::stochastic; });
    const int width = type.number_bits();
    if (random || width <= 16) return count_one_by_one(file, tensor, casts, threads, progress);
    return width == 32 ? count_by_boundaries<std::uint32_t>(file, tensor, casts, threads, progress)
                       : count_by_boundaries<std::uint64_t>(file, tensor, casts, threads, progress);
}

} // namespace amp
