// Tensors of torch.save's archives as views of their storages: how their elements lie there, and how they are read.
#pragma once

#include <ampscope/sim/io/detail/pickle.h>
#include <ampscope/sim/io/detail/zip_archive.h>

namespace amp {

/// How the elements of a view lie in its storage.
struct Layout {
    std::uint64_t begin = 0, end = 0; ///< range of storage elements that the view touches
    bool dense = false;               ///< the view contains every element of that range exactly once
    bool c_order = false;             ///< dense, and in C order
    bool ascending = false;           ///< in C order, no element lies before the one before it
    std::uint64_t repeats = 1;        ///< occurrences of each element: more than 1 for strides of 0 (expand)
};

Layout layout_of(const pickle::Tensor& t);

/// The same view with its dimensions in the order in which they lie in memory.
pickle::Tensor in_memory_order(const pickle::Tensor& t);

/// The storage that a view belongs to.
struct Storage {
    const ZipArchive& archive;
    std::size_t member;
    std::uint64_t item;       ///< bytes of an element
    std::size_t swapped_item; ///< bytes of a number if the storage is big-endian; else 0
};

/// The bytes of the storage's part that a view could keep in memory, at most.
inline constexpr std::uint64_t max_held = std::uint64_t{128} << 20;

/// Reads a view: a dense one in the order of its storage unless `c_order` is asked for, any other in C order.
/// `fail(what)` must throw; it is called for views that take too much memory or time.
std::unique_ptr<ByteStream> read_view(const Storage& storage, const pickle::Tensor& view, bool c_order,
                                      const std::function<void(const std::string& what)>& fail);

} // namespace amp
