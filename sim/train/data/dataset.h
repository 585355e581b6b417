// The datasets.
#pragma once

#include <ampscope/sim/program/dataset.h>

#include <filesystem>
#include <vector>

namespace amp {

/// y = w x + noise of deviation 0.1, x of 10 normal numbers; the weights follow from the seed.
Dataset regression_data(std::uint64_t seed);
/// 1797 handwritten digits of 8 x 8 pixels in [0, 1], as images of one channel; one in five for validation.
Dataset digits_data();
/// Sequences "a + b =", the answer (a + b) mod p as the target of the last token; all pairs, one in five for
/// validation.
Dataset modular_data(std::int64_t p);
/// The bytes of a text in windows of `context`, each byte the target of those before it; vocabulary: the bytes that
/// occur. The last tenth is for validation. Throws FileError.
Dataset text_data(const std::filesystem::path& file, std::int64_t context);
/// Arrays x (examples first) and y of an .npz: whole numbers from 0 in a y of one axis are classes. One in five for
/// validation. Throws FileError.
Dataset npz_data(const std::filesystem::path& file);

/// The example at position `i` of an order that visits each of `count` once an epoch, in another order every time.
class Shuffle {
  public:
    Shuffle(std::uint64_t seed, std::int64_t count) : seed_(seed), count_(count) {}
    std::int64_t operator[](std::int64_t i);

  private:
    std::uint64_t seed_;
    std::int64_t count_, epoch_ = -1;
    std::vector<std::int64_t> order_;
};

} // namespace amp
