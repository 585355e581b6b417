// The datasets.
#pragma once

#include <ampscope/sim/program/dataset.h>

#include <filesystem>
#include <vector>

namespace amp {

/// y = w x + noise with standard deviation 0.1; x has 10 normal numbers, and the weights w follow from the seed.
Dataset regression_data(std::uint64_t seed);
/// 1797 handwritten digits of 8 x 8 pixels in [0, 1], as images with one channel; one in five is for validation.
Dataset digits_data();
/// Sequences "a + b =" with the answer (a + b) mod p as the target of the last token: all pairs, one in five for
/// validation.
Dataset modular_data(std::int64_t p);
/// The data that a model is trained on unless other data are given: sums modulo `modulus` for gpt, regression for
/// linear, digits for the others.
Dataset own_data(const std::string& model, std::uint64_t seed, std::int64_t modulus = 31);
/// The bytes of a text in windows of `context` bytes; each byte is the target of those before it. The vocabulary is the
/// bytes that occur. The last tenth is for validation. Throws FileError.
Dataset text_data(const std::filesystem::path& file, std::int64_t context);
/// The same of "Alice's Adventures in Wonderland", 148,480 bytes that come with the program.
Dataset alice_data(std::int64_t context);
/// Arrays x (examples along the first axis) and y of an .npz file. If y has one axis of whole numbers from 0 on, they
/// are classes. One example in five is for validation. Throws FileError.
Dataset npz_data(const std::filesystem::path& file);

/// Maps position i of a training to an example: each of `count` comes once an epoch, in a new order every time.
class Shuffle {
  public:
    Shuffle(std::uint64_t seed, std::int64_t count) : seed_(seed), count_(count) {}
    std::int64_t operator[](std::int64_t i);

  private:
    std::uint64_t seed_;
    std::int64_t count_, epoch_ = -1;
    std::vector<std::int64_t> order_;
};

/// Copies examples first ... first + batch - 1 to input and target: training examples in shuffled order or, without a
/// shuffle, validation examples.
void read_batch(const Dataset& data, std::int64_t first, std::int64_t batch, Shuffle* shuffle, float* input,
                float* target);

} // namespace amp
