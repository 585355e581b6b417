// The processor as a backend: a buffer for each tensor, or a place in an arena that tensors share.
#pragma once

#include <ampscope/sim/backend/backend.h>

namespace amp {

class Cpu final : public Backend {
  public:
    /// Allocates every tensor of a finished program; those with a place in Program::shared lie in one arena. `threads`:
    /// 0 for every core; results do not depend on it.
    explicit Cpu(const Program& program, int threads = 0);
    /// Allocates nothing: each tensor that an op uses is lent before.
    struct Borrowed {};
    Cpu(const Program& program, Borrowed borrowed, int threads = 0);
    /// The elements of a tensor that is no view lie there, in FP32, while ops use it.
    void lend(TensorId id, std::span<float> elements) { elements_[storage(id)] = elements; }
    /// The same for a tensor that the lender has in 16 bits, in the codes of its format. Products read and write these
    /// where they can; for other ops the tensor is decoded to `elements`. `given`: the codes hold it at first.
    void lend(TensorId id, std::span<float> elements, std::uint16_t* codes, bool given);
    /// The codes, if they hold the tensor; else null.
    [[nodiscard]] const std::uint16_t* encoded(TensorId id) const;
    /// Where an op may write all codes in place of the elements, if anywhere.
    [[nodiscard]] std::uint16_t* write_codes(TensorId id);
    void encode(TensorId id); ///< so that the codes hold the tensor
    void decode(TensorId id); ///< so that operator[] does; nothing to do where it was not lent encoded

    [[nodiscard]] std::span<float> operator[](TensorId id) override { return elements_[storage(id)]; }
    [[nodiscard]] std::span<const float> operator[](TensorId id) const override { return elements_[storage(id)]; }
    void run(const Op& op) override;
    [[nodiscard]] int threads() const { return threads_; }

    // Called by ops, under the same names as for a device: the elements for reading, and for reading and writing.
    [[nodiscard]] const float* in(TensorId id) const { return (*this)[id].data(); }
    [[nodiscard]] float* out(TensorId id) { return (*this)[id].data(); }

  private:
    int threads_;
    struct Release {
        void operator()(float* elements) const;
    };
    std::unique_ptr<float[], Release> arena_; // not initialised: what shares it is written before it is read
    std::vector<std::vector<float>> buffers_;
    std::vector<std::span<float>> elements_; // of each tensor: in a buffer, or lent
    struct Encoded {
        std::uint16_t* codes = nullptr;
        bool holds = false; ///< the tensor; else its elements do
    };
    std::vector<Encoded> encoded_; // empty if no tensor was lent so
};

/// Makes backends that use so many threads; 0: every core.
MakeBackend on_processor(int threads = 0);

} // namespace amp
