#include <ampscope/sim/analysis/scaled_cast.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/detail/slab_caster.h>
#include <ampscope/sim/analysis/pass.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace amp {

namespace {

using detail::Layout, detail::Scales, detail::Slab, detail::SlabCaster, detail::Summary, detail::Tile;

/// Whether scales need the largest magnitude of the whole tensor or its lines, or of blocks that no slab holds.
bool looks_first(const Layout& layout, const ScaledCast& cast) {
    return !cast.given && (layout.parts || has_upper_scales(cast.scaling.rule));
}

/// The larger of two magnitudes; NaN is the largest, as in block_amax().
void keep_larger(float& most, float x) {
    most = std::bit_cast<float>(std::max(std::bit_cast<std::uint32_t>(most), std::bit_cast<std::uint32_t>(x)));
}

float largest_of(std::span<const float> magnitudes) {
    float most = 0;
    for (const float x : magnitudes) keep_larger(most, x);
    return most;
}

std::uint64_t slab_bytes(const TensorEntry& tensor, const Layout& layout) {
    return bytes_of(tensor.dtype, static_cast<std::uint64_t>(layout.slab));
}

/// The largest magnitudes: of each block if slabs hold parts of it, else of the whole tensor or its lines.
std::vector<float> largest_magnitudes(const TensorFile& file, std::size_t tensor, const Layout& layout,
                                      const ScaledCast& cast, int threads, const Progress& progress) {
    struct Worker {
        Slab slab;
        Tile tile;
        std::vector<float> most;
    };
    BlockScaling scaling = layout.scaling;
    const bool in_rows = !layout.parts && layout.has_upper_rows(), in_columns = scaling.upper.lines() && !in_rows;
    if (!layout.parts) {
        scaling.rows = in_rows ? 1 : 0;
        scaling.columns = in_columns ? 1 : 0;
    }
    const TensorEntry& entry = file.tensors()[tensor];
    std::vector<float> most(static_cast<std::size_t>(
        layout.parts ? layout.grid.count() : layout.scaling.upper_count(layout.rows, layout.columns)));
    const auto workers = detail::for_each_block<Worker>(
        file, tensor, slab_bytes(entry, layout), threads, progress, [] { return std::make_unique<Worker>(); },
        [&](Worker& worker, std::uint64_t index, std::span<const std::byte> data) {
            worker.slab.read(entry.dtype, data, layout, cast);
            worker.most.resize(most.size());
            const Tile& tile = worker.tile;
            worker.tile.for_each(worker.slab, layout, cast.transform, [&] {
                const std::vector<float> amax = block_amax(scaling, tile.x, tile.rows, tile.columns);
                const std::size_t first = in_rows      ? layout.first_row(index) + static_cast<std::size_t>(tile.top)
                                          : in_columns ? static_cast<std::size_t>(tile.left)
                                                       : 0;
                for (std::size_t i = 0; i < amax.size(); ++i) keep_larger(worker.most[first + i], amax[i]);
            });
        });
    for (const auto& worker : workers)
        for (std::size_t i = 0; i < worker->most.size(); ++i) keep_larger(most[i], worker->most[i]);
    return most;
}

/// What a slab adds to sums whose order matters, and the blocks that are kept.
struct SlabPart {
    double signal = 0, noise = 0;
    std::vector<ScaledBlock> blocks{};
};

/// The pass over a tensor in which it is cast.
class ScaledPass {
  public:
    /// `known`: the largest magnitudes of the blocks, the tensor or its lines, where scales need them at first.
    ScaledPass(const Layout& layout, const ScaledCast& cast, const ScaledOptions& options, std::vector<float> known)
        : layout_(layout), cast_(cast), options_(options), known_(std::move(known)), upper_(upper_of(layout, known_)),
          tensor_scale_(
              has_upper_scales(cast.scaling.rule) && !cast.given ? cast.scaling.tensor_scale(largest_of(upper_)) : 1),
          scales_(cast, tensor_scale_, layout.grid.count()), limit_(detail::largest_unsaturated(cast.scaling.element)),
          parts_of_blocks_(layout.parts ? static_cast<std::size_t>(layout.grid.count()) : 0) {}

    ScaledResult run(const TensorFile& file, std::size_t tensor, const Progress& progress) {
        const TensorEntry& entry = file.tensors()[tensor];
        const auto workers = detail::for_each_block<SlabCaster>(
            file, tensor, slab_bytes(entry, layout_), options_.threads, progress,
            [] { return std::make_unique<SlabCaster>(); },
            [&](SlabCaster& worker, std::uint64_t index, std::span<const std::byte> data) {
                worker.slab.read(entry.dtype, data, layout_, cast_);
                parts_.add(index, part_of(worker, static_cast<std::int64_t>(index)));
            },
            [&] { parts_.take([&](SlabPart& part) { take(part); }); });
        for (const auto& worker : workers) worker->summary.move_into(result_, scales_, options_.worst);
        finish();
        return std::move(result_);
    }

  private:
    /// The upper scales that follow from what is known; one that counts for nothing where there are none.
    static std::vector<float> upper_of(const Layout& layout, const std::vector<float>& known) {
        std::vector<float> upper = layout.parts || known.empty() ? std::vector{largest_of(known)} : known;
        for (float& u : upper) u = layout.scaling.upper_scale(u);
        return upper;
    }

    void place(ScaledBlock& block, std::int64_t index) const {
        block.row = index / layout_.grid.across;
        block.column = index % layout_.grid.across;
        if (layout_.transposed) std::swap(block.row, block.column);
    }

    /// To the next block in the order of `place`.
    void advance(ScaledBlock& block) const {
        std::int64_t &outer = layout_.transposed ? block.column : block.row,
                     &inner = layout_.transposed ? block.row : block.column;
        if (++inner < layout_.grid.across) return;
        inner = 0;
        ++outer;
    }

    SlabPart part_of(SlabCaster& worker, std::int64_t index) const {
        const Tile& tile = worker.tile;
        const bool looked = layout_.parts && !known_.empty();
        const std::int64_t first_block = index * layout_.blocks_in_slab();
        SlabPart part;
        ScaledBlock at;
        place(at, first_block);
        worker.tile.for_each(worker.slab, layout_, cast_.transform, [&] {
            std::vector<float> amax;
            if (!looked) amax = block_amax(layout_.scaling, tile.x, tile.rows, tile.columns);
            const std::int64_t number = index * layout_.slab + tile.top * worker.slab.columns + tile.left,
                               block = tile.top / layout_.grid.height * layout_.grid.across +
                                       tile.left / layout_.grid.width;
            worker.cast_tile(cast_, layout_.scaling, looked ? known_ : amax, upper_in(index, tile), scales_, limit_,
                             static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(first_block + block));
            if (!layout_.parts) add_complete(worker, at, part);
            if (options_.blocks || layout_.parts)
                part.blocks.insert(part.blocks.end(), worker.blocks.begin(), worker.blocks.end());
        });
        return part;
    }

    std::span<const float> upper_in(std::int64_t slab, const Tile& tile) const {
        const std::span<const float> upper = upper_;
        if (!layout_.scaling.upper.lines()) return upper;
        if (!layout_.has_upper_rows())
            return upper.subspan(static_cast<std::size_t>(tile.left), static_cast<std::size_t>(tile.columns));
        return upper.subspan(layout_.first_row(static_cast<std::uint64_t>(slab)) + static_cast<std::size_t>(tile.top),
                             static_cast<std::size_t>(tile.rows));
    }

    /// Adds blocks that the tile holds whole; `at` goes from the place of its first to that of the next tile's.
    void add_complete(SlabCaster& worker, ScaledBlock& at, SlabPart& part) const {
        for (ScaledBlock& block : worker.blocks) {
            block.row = at.row;
            block.column = at.column;
            advance(at);
            part.signal += block.signal;
            part.noise += block.noise;
            worker.summary.add(block, scales_, layout_.grid.height * layout_.grid.width, options_.worst);
        }
    }

    void take(const SlabPart& part) {
        result_.statistics.signal += part.signal;
        result_.statistics.noise += part.noise;
        if (layout_.parts)
            for (std::size_t i = 0; i < part.blocks.size(); ++i) parts_of_blocks_[i].merge(part.blocks[i]);
        else result_.blocks.insert(result_.blocks.end(), part.blocks.begin(), part.blocks.end());
    }

    void finish() {
        Summary complete;
        for (std::size_t i = 0; i < parts_of_blocks_.size(); ++i) {
            ScaledBlock& block = parts_of_blocks_[i];
            place(block, static_cast<std::int64_t>(i));
            result_.statistics.signal += block.signal;
            result_.statistics.noise += block.noise;
            complete.add(block, scales_, layout_.grid.height * layout_.grid.width, options_.worst);
        }
        complete.move_into(result_, scales_, options_.worst);
        if (layout_.parts && options_.blocks) result_.blocks = std::move(parts_of_blocks_);
        result_.tensor_scale = tensor_scale_;
        const BlockGrid& grid = layout_.grid;
        result_.height = layout_.transposed ? grid.width : grid.height;
        result_.width = layout_.transposed ? grid.height : grid.width;
        result_.down = layout_.transposed ? grid.across : grid.down;
        result_.across = layout_.transposed ? grid.down : grid.across;
        if (layout_.transposed)
            std::ranges::sort(result_.blocks, {}, [](const ScaledBlock& b) { return std::pair(b.row, b.column); });
    }

    const Layout& layout_;
    const ScaledCast& cast_;
    const ScaledOptions& options_;
    std::vector<float> known_, upper_;
    float tensor_scale_;
    Scales scales_;
    float limit_;
    std::vector<ScaledBlock> parts_of_blocks_; ///< blocks that slabs hold parts of
    BlockParts<SlabPart> parts_;
    ScaledResult result_{};
};

double decibels(double signal, double noise) {
    const FloatEnvironment environment;
    return noise == 0 && signal != 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

} // namespace

void ScaledBlock::merge(const ScaledBlock& part) {
    scale = part.scale;
    amax = std::max(amax, part.amax);
    least = least == 0 ? part.least : part.least == 0 ? least : std::min(least, part.least);
    elements += part.elements;
    nonzero += part.nonzero;
    nonfinite += part.nonfinite;
    underflow += part.underflow;
    saturated += part.saturated;
    lost += part.lost;
    signal += part.signal;
    noise += part.noise;
}

double ScaledBlock::relative_noise() const {
    if (lost > 0) return std::numeric_limits<double>::infinity();
    return noise == 0 ? 0 : noise / signal;
}

bool is_worse(const ScaledBlock& a, const ScaledBlock& b) {
    const double x = a.relative_noise(), y = b.relative_noise();
    if (x != y) return x > y;
    if (a.noise != b.noise) return a.noise > b.noise;
    return a.row != b.row ? a.row < b.row : a.column < b.column;
}

double ScaledBlock::sqnr() const { return decibels(signal, noise); }
double ScaledStatistics::sqnr() const { return decibels(signal, noise); }

std::map<int, std::uint64_t> exponents_of_scales(const ScaledStatistics& statistics, const FormatSpec& scale) {
    if (!scales_have_codes(scale)) return statistics.scales;
    std::map<int, std::uint64_t> exponents;
    for (const auto& [code, n] : statistics.scales)
        exponents[std::ilogb(decode(scale, static_cast<std::uint32_t>(code)))] += n;
    return exponents;
}

double ScaledStatistics::mean_squared_error() const { return noise / static_cast<double>(compared()); }

double ScaledStatistics::spread() const {
    return static_cast<double>(largest_scale) / static_cast<double>(least_scale);
}

void ScaledStatistics::merge(const ScaledStatistics& later) {
    const FloatEnvironment environment;
    for (const auto count :
         {&ScaledStatistics::elements, &ScaledStatistics::nonzero, &ScaledStatistics::nonfinite,
          &ScaledStatistics::underflow, &ScaledStatistics::saturated, &ScaledStatistics::lost,
          &ScaledStatistics::blocks, &ScaledStatistics::zero_blocks, &ScaledStatistics::partial_blocks,
          &ScaledStatistics::nonfinite_blocks, &ScaledStatistics::zero_scales, &ScaledStatistics::nonfinite_scales,
          &ScaledStatistics::saturated_scales})
        this->*count += later.*count;
    signal += later.signal;
    noise += later.noise;
    if (later.least_scale != 0)
        least_scale = least_scale == 0 ? later.least_scale : std::min(least_scale, later.least_scale);
    largest_scale = std::max(largest_scale, later.largest_scale);
    for (const auto& [key, n] : later.scales) scales[key] += n;
    for (const auto& [key, n] : later.ranges) ranges[key] += n;
}

bool can_scale(const TensorEntry& tensor, const ScaledCast& cast) {
    constexpr std::int64_t most = std::int64_t{1} << 26;
    if (tensor.count == 0) return true;
    if (detail::layout_of(tensor, cast).slab > most) return false;
    if (!tensor.storage_order) return true;
    const auto [rows, columns] = detail::matrix_of(tensor);
    const bool plain = !cast.transform.apply && cast.rounding != Rounding::stochastic &&
                       cast.scaling.rule != ScaleRule::ms_eden; // which draws by the index in C order
    return plain && (tensor.shape.size() == 2 || cast.scaling.grid(rows, columns).count() == 1);
}

int passes_over(const TensorEntry& tensor, const ScaledCast& cast) {
    return tensor.count != 0 && looks_first(detail::layout_of(tensor, cast), cast) ? 2 : 1;
}

float scaled_amax(const TensorFile& file, std::size_t tensor, const ScaledCast& cast, int threads,
                  const Progress& progress) {
    const FloatEnvironment environment;
    if (file.tensors()[tensor].count == 0) return 0;
    const Layout layout = detail::layout_of(file.tensors()[tensor], cast);
    return largest_of(largest_magnitudes(file, tensor, layout, cast, threads, progress));
}

ScaledResult measure_scaled(const TensorFile& file, std::size_t tensor, const ScaledCast& cast,
                            const ScaledOptions& options, const Progress& progress) {
    const FloatEnvironment environment;
    if (file.tensors()[tensor].count == 0) return {};
    const Layout layout = detail::layout_of(file.tensors()[tensor], cast);
    std::vector<float> known;
    if (looks_first(layout, cast)) known = largest_magnitudes(file, tensor, layout, cast, options.threads, progress);
    return ScaledPass(layout, cast, options, std::move(known)).run(file, tensor, progress);
}

} // namespace amp
