// Reads the numbers of a tensor of any dtype, a part at a time.
#pragma once

#include <ampscope/sim/analysis/count.h>
#include <ampscope/sim/io/tensor_file.h>

#include <vector>

namespace amp {

struct StoredNumber {
    std::uint64_t bits;
    Unpacked number; ///< the exact value of the bits

    /// The double nearest to the number.
    [[nodiscard]] double value() const { return value_of(number); }
};

class NumberReader {
  public:
    /// The file must outlive the reader.
    NumberReader(const TensorFile& file, std::size_t tensor)
        : file_(file), tensor_(tensor), stream_(file.random_access(tensor) ? nullptr : file.stream(tensor)) {}

    /// Whether the tensor is read as a stream: then parts must be read in order, each once.
    [[nodiscard]] bool is_stream() const { return stream_ != nullptr; }
    [[nodiscard]] DType dtype() const { return file_.tensors()[tensor_].dtype; }
    /// How many numbers there are: two for each complex element.
    [[nodiscard]] std::uint64_t numbers() const {
        return file_.tensors()[tensor_].count * static_cast<std::uint64_t>(info(dtype()).numbers());
    }
    /// Reads the numbers [begin, end), which must be a whole number of bytes. Throws FileError.
    [[nodiscard]] std::vector<StoredNumber> read(std::uint64_t begin, std::uint64_t end) const {
        std::vector<std::byte> data(bytes_of(dtype(), end) - bytes_of(dtype(), begin));
        if (stream_) stream_->read(data);
        else file_.read_at(tensor_, bytes_of(dtype(), begin), data);
        std::vector<StoredNumber> numbers;
        numbers.reserve(end - begin);
        for_each_number(dtype(), data, [&](std::size_t, std::uint64_t bits) {
            numbers.push_back({bits, unpack_number(dtype(), bits)});
        });
        return numbers;
    }

  private:
    const TensorFile& file_;
    std::size_t tensor_;
    std::unique_ptr<ByteStream> stream_;
};

} // namespace amp
