// Memory for packed operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace amp::cpu {

/// An array that begins at a cache line: a vector that extends over two lines costs two loads.
template <class T>
class Panels {
  public:
    T* resize(std::int64_t count) {
        if (count > capacity_) {
            data_.reset(static_cast<T*>(::operator new(static_cast<std::size_t>(count) * sizeof(T), line)));
            capacity_ = count;
        }
        return data_.get();
    }
    [[nodiscard]] const T* data() const { return data_.get(); }

  private:
    static constexpr std::align_val_t line{64};
    struct Delete {
        void operator()(T* data) const { ::operator delete(data, line); }
    };
    std::unique_ptr<T, Delete> data_;
    std::int64_t capacity_ = 0;
};

} // namespace amp::cpu
