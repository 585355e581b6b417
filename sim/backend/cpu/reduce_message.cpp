#include <ampscope/sim/backend/cpu/detail/reduce_message.h>

#include <ampscope/formats/batch.h>
#include <ampscope/sim/backend/kernels/all_reduce.h>

#include <cstring>
#include <stdexcept>

namespace amp {

namespace {

/// Calls visit(Code()) with the type of codes that are whole bytes, and returns true; others: false.
template <class Visit>
bool with_whole_code(const FormatSpec& format, const Visit& visit) {
    if (format.bits() == 8) visit(std::uint8_t());
    else if (format.bits() == 16) visit(std::uint16_t());
    else if (format.bits() == 32) visit(std::uint32_t());
    else return false;
    return true;
}

class BitWriter {
  public:
    void put(const FormatSpec& format, std::span<const float> numbers) {
        if (count_ == 0 && with_whole_code(format, [&]<class Code>(Code) {
                const std::vector<Code> codes = codes_of<Code>(format, numbers);
                const std::span<const std::byte> raw = std::as_bytes(std::span(codes));
                bytes_.insert(bytes_.end(), raw.begin(), raw.end());
            }))
            return;
        for (const std::uint32_t code : codes_of<std::uint32_t>(format, numbers)) {
            pending_ |= std::uint64_t{code} << count_;
            count_ += format.bits();
            for (; count_ >= 8; count_ -= 8, pending_ >>= 8) bytes_.push_back(static_cast<std::byte>(pending_));
        }
    }
    std::vector<std::byte> finish() {
        if (count_ > 0) bytes_.push_back(static_cast<std::byte>(pending_));
        return std::move(bytes_);
    }

  private:
    template <class Code>
    static std::vector<Code> codes_of(const FormatSpec& format, std::span<const float> numbers) {
        std::vector<Code> codes(numbers.size());
        encode(format, numbers, std::span(codes));
        return codes;
    }

    std::vector<std::byte> bytes_;
    std::uint64_t pending_ = 0;
    int count_ = 0; ///< pending bits, fewer than 8 between two codes
};

class BitReader {
  public:
    explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    void get(const FormatSpec& format, std::span<float> numbers) {
        if (count_ == 0 && with_whole_code(format, [&]<class Code>(Code) {
                std::vector<Code> codes(numbers.size());
                const std::span<const std::byte> raw = take(codes.size() * sizeof(Code));
                if (!raw.empty()) std::memcpy(codes.data(), raw.data(), raw.size());
                decode(format, std::span<const Code>(codes), numbers);
            }))
            return;
        std::vector<std::uint32_t> codes(numbers.size());
        for (std::uint32_t& code : codes) {
            for (; count_ < format.bits(); count_ += 8)
                pending_ |= std::uint64_t{std::to_integer<std::uint8_t>(take(1)[0])} << count_;
            code = static_cast<std::uint32_t>(pending_ & ((std::uint64_t{1} << format.bits()) - 1));
            pending_ >>= format.bits();
            count_ -= format.bits();
        }
        decode(format, std::span<const std::uint32_t>(codes), numbers);
    }
    [[nodiscard]] std::size_t bytes_read() const { return at_; }

  private:
    std::span<const std::byte> take(std::size_t count) {
        if (count > bytes_.size() - at_) throw std::runtime_error("a message of another rank is too short");
        const std::span<const std::byte> taken = bytes_.subspan(at_, count);
        at_ += count;
        return taken;
    }

    std::span<const std::byte> bytes_;
    std::size_t at_ = 0;
    std::uint64_t pending_ = 0;
    int count_ = 0;
};

/// The parts of a message as the cast makes them.
struct Parts {
    std::vector<float> upper_scales, scales, elements;
    void upper_scale(float x) { upper_scales.push_back(x); }
    void scale(float x) { scales.push_back(x); }
    void element(float x) { elements.push_back(x); }
};

} // namespace

std::vector<std::byte> pack_message(const MessageFormat& f, std::span<float> numbers) {
    BitWriter writer;
    if (!f.casts) {
        writer.put(f.format, numbers);
        return writer.finish();
    }
    if (numbers.empty()) return {};
    Parts parts;
    kernels::cast_message(f.blocks, numbers.data(), std::ssize(numbers), parts);
    if (has_upper_scales(f.blocks.rule)) writer.put(fp32_format(), parts.upper_scales);
    writer.put(f.blocks.scale_format(), parts.scales);
    writer.put(f.blocks.element, parts.elements);
    return writer.finish();
}

std::size_t unpack_message(const MessageFormat& f, std::span<const std::byte> message, std::span<float> numbers) {
    BitReader reader(message);
    if (!f.casts) {
        reader.get(f.format, numbers);
        return reader.bytes_read();
    }
    if (numbers.empty()) return 0;
    float upper = 1;
    if (has_upper_scales(f.blocks.rule)) reader.get(fp32_format(), {&upper, 1});
    const BlockGrid grid = f.blocks.grid(1, std::ssize(numbers));
    std::vector<float> scales(static_cast<std::size_t>(grid.across));
    reader.get(f.blocks.scale_format(), scales);
    reader.get(f.blocks.element, numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const float decode = scales[static_cast<std::size_t>(grid.of(static_cast<std::int64_t>(i)))];
        numbers[i] = kernels::read_element(f.blocks, numbers[i], f.blocks.factor(decode, upper));
    }
    return reader.bytes_read();
}

} // namespace amp
