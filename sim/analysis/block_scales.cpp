#include <ampscope/sim/analysis/block_scales.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/count.h>

#include <cmath>
#include <numeric>

namespace amp {

namespace {

/// The class boundaries of a format as shares of its largest value, so that |x| / amax can be compared without a
/// division.
struct AmaxBoundaries {
    double max, half_smallest, normal_from;

    explicit AmaxBoundaries(const FormatSpec& f)
        : max(decode(f, f.max_code())), half_smallest(std::ldexp(1.0, f.min_subnormal_exponent() - 1)),
          normal_from(std::ldexp(1.0, f.min_exponent()) - half_smallest) {}

    /// Classifies x * max / amax rounded to nearest even; both products are exact for magnitudes of at most 48 bits.
    void add(double x, double amax, ClassCounts& counts) const {
        const double scaled = x * max;
        if (scaled <= half_smallest * amax) ++counts.underflow;
        else if (scaled < normal_from * amax) ++counts.subnormal;
        else ++counts.normal;
    }
};

std::vector<FormatSpec> element_formats() {
    std::vector<FormatSpec> result;
    for (const FormatSpec& f : formats)
        if (f.bits() <= 8 && !f.is_scale() && !f.is_integer()) result.push_back(f);
    return result;
}

/// The counts of one thread. MX scales are powers of two, so magnitudes relative to the binade of their block's amax
/// suffice for all formats at once; only blocks whose scale would be outside E8M0 are counted format by format.
struct BlockWorker {
    BlockStatistics result;
    MagnitudeHistogram relative;
    std::vector<AmaxBoundaries> boundaries;
    std::vector<Unpacked> numbers;
    std::vector<double> magnitudes;

    BlockWorker() {
        for (const FormatSpec& f : element_formats()) {
            result.formats.push_back({f, {}, {}, {}});
            boundaries.emplace_back(f);
        }
    }

    /// Counts the block of numbers [first, last) of `bytes`.
    void add_block(DType dtype, std::span<const std::byte> bytes, std::size_t first, std::size_t last,
                   double tensor_amax) {
        numbers.clear();
        magnitudes.clear();
        for_each_number(dtype, bytes, first, last, [&](std::size_t, std::uint64_t bits) {
            const Unpacked x = unpack_number(dtype, bits);
            if (x.kind != Kind::finite) return;
            numbers.push_back(x);
            magnitudes.push_back(std::ldexp(static_cast<double>(x.significand), x.exponent));
        });
        ++result.blocks;
        if (numbers.empty()) {
            ++result.zero_blocks;
            return;
        }
        const double amax = *std::ranges::max_element(magnitudes);
        const int binade = std::ilogb(amax);
        ++result.amax_exponents[binade];
        add_mx(binade);
        for (std::size_t f = 0; f < boundaries.size(); ++f)
            for (const double x : magnitudes) {
                boundaries[f].add(x, amax, result.formats[f].amax);
                boundaries[f].add(x, tensor_amax, result.formats[f].tensor);
            }
    }

    void add_mx(int binade) {
        constexpr int lowest_scale = -127;
        const auto clamped = [&](const BlockCounts& f) { return binade - f.format.max_exponent() < lowest_scale; };
        MagnitudeHistogram block;
        for (Unpacked x : numbers) {
            x.exponent -= binade;
            block.add(x);
        }
        if (std::ranges::none_of(result.formats, clamped)) return relative.merge(block);
        for (BlockCounts& f : result.formats)
            f.mx += block.classify(f.format, clamped(f) ? binade - lowest_scale : f.format.max_exponent());
    }
};

} // namespace

void BlockStatistics::merge(const BlockStatistics& other) {
    if (blocks == 0 && formats.empty()) {
        *this = other;
        return;
    }
    blocks += other.blocks;
    zero_blocks += other.zero_blocks;
    for (const auto& [exponent, n] : other.amax_exponents) amax_exponents[exponent] += n;
    std::erase_if(formats, [&](BlockCounts& mine) {
        const auto theirs = std::ranges::find(other.formats, mine.format, &BlockCounts::format);
        if (theirs == other.formats.end()) return true;
        mine.mx += theirs->mx;
        mine.amax += theirs->amax;
        mine.tensor += theirs->tensor;
        return false;
    });
}

BlockStatistics measure_blocks(const TensorFile& file, std::size_t tensor, std::uint64_t block, double tensor_amax,
                               int threads, const Progress& progress) {
    const FloatEnvironment environment;
    const DTypeInfo& type = info(file.tensors()[tensor].dtype);
    const std::uint64_t width = static_cast<std::uint64_t>(type.number_bits());
    // Blocks of sub-byte numbers may end within a byte, so blocks are read in groups that end on one.
    const std::uint64_t together =
        std::lcm(block * width, std::uint64_t{8} * static_cast<std::uint64_t>(type.unit_bytes())) / (block * width);
    const std::uint64_t bytes = together * block * width / 8;
    const auto workers = detail::for_each_block<BlockWorker>(
        file, tensor, bytes, threads, progress, [] { return std::make_unique<BlockWorker>(); },
        [&](BlockWorker& worker, std::uint64_t, std::span<const std::byte> data) {
            const std::uint64_t count = data.size() * 8 / width;
            for (std::uint64_t at = 0; at < count; at += block)
                worker.add_block(type.dtype, data, at, std::min(at + block, count), tensor_amax);
        });
    BlockStatistics result = BlockWorker().result;
    for (const auto& worker : workers) {
        for (BlockCounts& f : worker->result.formats)
            f.mx += worker->relative.classify(f.format, f.format.max_exponent());
        result.merge(worker->result);
    }
    return result;
}

} // namespace amp
