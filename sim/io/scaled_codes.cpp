#include <ampscope/sim/io/detail/scaled_codes.h>

#include <ampscope/formats/codec.h>
#include <ampscope/formats/environment.h>

#include <array>
#include <cstring>

namespace amp {

namespace {

class ScaledStream : public ByteStream {
  public:
    ScaledStream(std::unique_ptr<ByteStream> codes, ScaledCodes scaled)
        : codes_(std::move(codes)), scaled_(std::move(scaled)), bits_(info(scaled_.format).bits) {
        const FormatSpec format = amp::format(info(scaled_.format).format);
        for (std::uint32_t code = 0; code < 1u << bits_; ++code) values_[code] = decode(format, code);
    }

    std::size_t read(std::span<std::byte> out) override {
        const FloatEnvironment environment;
        return fill(out);
    }

  private:
    [[gnu::noinline]] std::size_t fill(std::span<std::byte> out) {
        std::size_t done = 0;
        for (; done + sizeof(double) <= out.size() && row_ < scaled_.rows; done += sizeof(double)) {
            if (left_ == 0 && !next_byte()) break;
            const double value = product(values_[byte_ & ((1u << bits_) - 1)], scale());
            std::memcpy(out.data() + done, &value, sizeof value);
            byte_ >>= bits_;
            left_ -= bits_;
            if (++column_ < scaled_.columns) continue;
            column_ = 0;
            ++row_;
        }
        return done;
    }

    bool next_byte() {
        if (at_ == held_) {
            held_ = codes_->read(buffer_);
            at_ = 0;
            if (held_ == 0) return false;
        }
        byte_ = std::to_integer<std::uint32_t>(buffer_[at_++]);
        left_ = 8;
        return true;
    }

    [[nodiscard]] float scale() const {
        const std::uint64_t i = row_ / scaled_.blocks.rows, j = column_ / scaled_.blocks.columns;
        return scaled_.scales[scaled_.blocks.transposed ? j * scaled_.stride + i : i * scaled_.stride + j];
    }
    [[nodiscard]] double product(float value, float scale) const {
        return scaled_.single ? double{value * scale} : double{value} * double{scale};
    }

    std::unique_ptr<ByteStream> codes_;
    ScaledCodes scaled_;
    int bits_;
    std::array<float, 256> values_{}; ///< the value of each code
    std::array<std::byte, 1 << 14> buffer_{};
    std::size_t at_ = 0, held_ = 0;
    std::uint32_t byte_ = 0; ///< codes that are still to be read
    int left_ = 0;           ///< bits of them
    std::uint64_t row_ = 0, column_ = 0;
};

} // namespace

std::unique_ptr<ByteStream> read_scaled(std::unique_ptr<ByteStream> codes, ScaledCodes scaled) {
    return std::make_unique<ScaledStream>(std::move(codes), std::move(scaled));
}

} // namespace amp
