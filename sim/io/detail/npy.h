// The .npy header, shared by .npy files and the members of .npz files.
// Format: numpy/lib/format.py, versions 1.0, 2.0 and 3.0.
#pragma once

#include <ampscope/sim/io/tensor_file.h>

#include <string_view>

namespace amp {

struct NpyHeader {
    TensorEntry entry; ///< the array's entry, without a name
    bool big_endian = false;

    /// Size in bytes of the numbers to be swapped; 0 for little-endian data.
    [[nodiscard]] std::size_t swapped_item() const {
        return big_endian ? static_cast<std::size_t>(info(entry.dtype).bits / 8 / info(entry.dtype).numbers()) : 0;
    }
};

/// Number of bytes at the front of a file that tell how long its header is.
inline constexpr std::size_t npy_preamble = 12;

/// Total size of the header in bytes, read from the first npy_preamble bytes (or all of a shorter file); data begin
/// there. Throws FileError without .npy's magic bytes, or if the header claims more than 64 KiB (NumPy itself refuses
/// above 10 kB).
std::size_t npy_header_size(std::span<const std::byte> preamble, const std::filesystem::path& file,
                            const std::string& where);

/// Parses a whole header, which is a Python dict literal with descr, fortran_order and shape, and nothing else. `where`
/// begins the place that error messages name: empty, or "member 'NAME': ".
NpyHeader parse_npy_header(std::string_view header, const OpenOptions& options, const std::filesystem::path& file,
                           const std::string& where);

/// The header of version 1.0, padded so that the data begin at a multiple of 64, as NumPy writes it. Throws FileError
/// for what .npy cannot hold.
std::string npy_header(const std::filesystem::path& path, const TensorEntry& tensor);

} // namespace amp
