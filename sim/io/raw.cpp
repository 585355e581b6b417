// Raw files: elements only; the caller gives their type and shape.
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/byte_file.h>

namespace amp {

namespace {

class RawFile : public FlatTensorFile {
  public:
    RawFile(const std::filesystem::path& path, const OpenOptions& options) : FlatTensorFile(path) {
        if (!options.dtype)
            throw FileError(path, "unknown kind of file; name it .safetensors, .npy, .npz or .pt" +
                                      (options.dtype_option.empty()
                                           ? ""
                                           : ", or say what it holds with " + std::string(options.dtype_option)));
        TensorEntry entry{.name = path.stem().string(), .dtype = *options.dtype, .shape = options.shape};
        const DTypeInfo& type = info(entry.dtype);
        if (entry.shape.empty()) {
            const auto unit = static_cast<std::uint64_t>(type.unit_bytes());
            if (file_.size() % unit != 0)
                throw FileError(path, plural(file_.size(), "byte") + ": not a whole number of " +
                                          std::string(type.name) + " elements");
            entry.shape = {file_.size() / unit * unit * 8 / static_cast<std::uint64_t>(type.bits)};
        }
        finish_entry(entry, path);
        if (entry.bytes != file_.size())
            throw FileError(path, "the shape takes " + std::to_string(entry.bytes) + " bytes of " +
                                      std::string(type.name) + " but the file has " + std::to_string(file_.size()));
        tensors_.push_back(std::move(entry));
        begins_.push_back(0);
    }
};

} // namespace

std::unique_ptr<TensorFile> open_raw(const std::filesystem::path& path, const OpenOptions& options) {
    return std::make_unique<RawFile>(path, options);
}

} // namespace amp
