// What the files of the Python module share.
#pragma once

#include <ampscope/formats/batch.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/histogram.h>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace amp::python {

namespace nb = nanobind;

/// Goes with every function of the module: other packages in the process flush subnormals (torch.set_flush_denormal) or
/// round in another direction.
using InEnvironment = nb::call_guard<FloatEnvironment>;

/// The format that a user names: a Format, a name, or a dtype of torch, NumPy or ml_dtypes. Throws nb::type_error for
/// objects of other types and std::invalid_argument for names that are none.
FormatSpec format_of(const nb::object& named);
/// One such format, or those of an iterable.
std::vector<FormatSpec> formats_in(const nb::object& named);

/// An array of NumPy, or of anything with DLPack, that lies in memory in C order.
template <class T>
using Array = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Result = nb::ndarray<nb::numpy, T>;

/// How type checkers want equality declared: for any other object.
inline const nb::sig equality("def __eq__(self, arg: object, /) -> bool");

template <class T>
std::span<const T> span_of(const Array<T>& array) {
    return {array.data(), array.size()};
}

/// Asks for large pages, as NumPy does for its own arrays: without them the first writes to memory take longer than
/// what is written takes to compute.
inline void ask_for_large_pages(void* data, std::size_t bytes) {
    constexpr std::size_t large = std::size_t{1} << 22, page = 4096;
    if (bytes < large) return;
    const std::size_t skipped = (page - std::bit_cast<std::uintptr_t>(data) % page) % page;
    madvise(static_cast<std::byte*>(data) + skipped, bytes - skipped, MADV_HUGEPAGE); // refused, all is as it was
}

/// A new array of NumPy, of that shape, all of which fill(span) writes, without Python's lock.
template <class T, class Fill>
Result<T> filled(const std::vector<std::size_t>& shape, const Fill& fill) {
    std::size_t size = 1;
    for (const std::size_t extent : shape) size *= extent;
    auto data = std::make_unique_for_overwrite<T[]>(std::max<std::size_t>(size, 1));
    ask_for_large_pages(data.get(), size * sizeof(T));
    {
        const nb::gil_scoped_release release;
        fill(std::span<T>(data.get(), size));
    }
    const nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return {data.release(), shape.size(), shape.data(), owner};
}

/// The same, of the shape of another array.
template <class T, class Like, class Fill>
Result<T> filled_like(const Like& like, const Fill& fill) {
    std::vector<std::size_t> shape;
    for (std::size_t i = 0; i < like.ndim(); ++i) shape.push_back(like.shape(i));
    return filled<T>(shape, fill);
}

/// Python's own objects from JSON text.
inline nb::object from_json(const std::string& text) { return nb::module_::import_("json").attr("loads")(text); }

/// A recommended loss scale: log2_scale, window, lowest_enough, highest_safe (exponents of two).
nb::dict recommendation_dict(const Recommendation& recommendation);

void bind_formats(nb::module_& m);
void bind_adam(nb::module_& m);
void bind_analysis(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_mismatch(nb::module_& m);
void bind_collective(nb::module_& m);
void bind_comparison(nb::module_& m);
void bind_diff(nb::module_& m);
void bind_eager(nb::module_& m);
void bind_histogram(nb::module_& m);
void bind_loss_scale(nb::module_& m);
void bind_optimizer(nb::module_& m);
void bind_p3109_blocks(nb::module_& m);
void bind_products(nb::module_& m);
void bind_recorded_run(nb::module_& m);
void bind_recording(nb::module_& m);
void bind_step_comparison(nb::module_& m);
void bind_teaching(nb::module_& m);
void bind_training(nb::module_& m);

} // namespace amp::python
