// safetensors: an 8-byte little-endian header length, a JSON header, the data. The format's own specification and
// reference reader (huggingface/safetensors) refuse all that is refused here; the numbers in the code refer to these
// rules:
//  1 no length  2 length above 100 MB  3 length beyond the file  4 not UTF-8  5 not one JSON object  6 duplicate keys
//  7 metadata not strings  8 unknown dtype  9 holes, overlaps, disorder  10 shape overflows  11 size overflows
//  12 no whole bytes  13 offsets do not fit shape and dtype  14 data does not end with the file
#include <ampscope/sim/io/byte_file.h>

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

namespace amp {

namespace {

constexpr std::uint64_t max_header = 100'000'000;
// Limits on what is kept of a header: a few of its bytes can become some thousand in memory. The largest checkpoints
// have 100,000 tensors, spread over many files.
constexpr std::size_t max_tensors = 200'000, max_metadata = 200'000, max_name = 1000, max_rank = 64;

struct HeaderEntry {
    TensorEntry tensor;
    std::vector<std::uint64_t> offsets;
};

/// Follows the three levels of the header. An unexpected event ends the parse with `error` set.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
  public:
    std::vector<HeaderEntry> entries;
    std::map<std::string, std::string> metadata;
    std::string error;

    bool start_object(std::size_t) override {
        if (place_ == Place::file && !begun_) return begun_ = true;
        if (place_ == Place::value && key_ == "__metadata__") return enter(Place::metadata);
        if (place_ == Place::value) {
            if (entries.size() == max_tensors) return fail("more than 200,000 tensors in one file");
            entries.push_back({.tensor = {.name = key_}, .offsets = {}});
            fields_.clear();
            return enter(Place::tensor);
        }
        return unexpected("an object");
    }

    bool key(std::string& name) override {
        switch (place_) {
        case Place::file:
            if (name.size() > max_name) return fail("a tensor's name of more than 1000 bytes: '" + name + "'");
            if (!names_.insert(name).second) return fail("duplicate key '" + name + "'");
            key_ = name;
            return enter(Place::value);
        case Place::metadata:
            if (metadata.size() == max_metadata) return fail("more than 200,000 entries of __metadata__");
            if (metadata.contains(name)) return fail("duplicate key '" + name + "' in __metadata__");
            metadata_key_ = name;
            return true;
        case Place::tensor:
            if (!fields_.insert(name).second) return fail_in_tensor("duplicate key '" + name + "'");
            if (name == "dtype") return enter(Place::dtype);
            if (name == "shape") return enter(Place::before_shape);
            if (name == "data_offsets") return enter(Place::before_offsets);
            return fail_in_tensor("unexpected key '" + name + "'");
        default: return unexpected("a key");
        }
    }

    bool end_object() override {
        if (place_ == Place::tensor) {
            if (fields_.size() != 3) return fail_in_tensor("needs dtype, shape and data_offsets");
            if (entries.back().offsets.size() != 2) return fail_in_tensor("data_offsets must be two numbers");
        }
        return enter(Place::file);
    }

    bool string(std::string& value) override {
        if (place_ == Place::metadata) {
            metadata[metadata_key_] = value;
            return true;
        }
        if (place_ != Place::dtype) return unexpected("a string");
        const auto* row = std::ranges::find(dtypes, std::string_view(value), &DTypeInfo::name);
        if (row == dtypes.end()) return fail_in_tensor("unknown dtype '" + value + "'");
        entries.back().tensor.dtype = row->dtype;
        return enter(Place::tensor);
    }

    bool number_unsigned(std::uint64_t value) override {
        if (place_ == Place::shape) {
            if (entries.back().tensor.shape.size() == max_rank) return fail_in_tensor("more than 64 dimensions");
            entries.back().tensor.shape.push_back(value);
            return true;
        }
        if (place_ != Place::offsets) return unexpected("a number");
        if (entries.back().offsets.size() == 2) return fail_in_tensor("data_offsets must be two numbers");
        entries.back().offsets.push_back(value);
        return true;
    }

    bool start_array(std::size_t) override {
        if (place_ == Place::before_shape) return enter(Place::shape);
        if (place_ == Place::before_offsets) return enter(Place::offsets);
        return unexpected("an array");
    }
    bool end_array() override { return enter(Place::tensor); }

    bool null() override { return unexpected("null"); }
    bool boolean(bool) override { return unexpected("a truth value"); }
    bool number_integer(std::int64_t) override { return unexpected("a negative number"); }
    bool number_float(double, const std::string& text) override { return unexpected("the number " + text); }
    bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& problem) override {
        const bool utf8 = std::string_view(problem.what()).find("UTF-8") != std::string_view::npos;
        return fail("byte " + std::to_string(8 + position) +
                    (utf8 ? ": the header is not UTF-8" : ": the header is not JSON"));
    }

  private:
    enum class Place { file, value, metadata, tensor, dtype, before_shape, shape, before_offsets, offsets };

    bool enter(Place place) {
        place_ = place;
        return true;
    }
    bool fail(std::string what) {
        error = std::move(what);
        return false;
    }
    bool fail_in_tensor(const std::string& what) { return fail("tensor '" + key_ + "': " + what); }
    bool unexpected(const std::string& what) {
        if (place_ == Place::metadata) return fail("__metadata__ must map strings to strings, found " + what);
        return key_.empty() ? fail("the header must be an object, found " + what)
                            : fail_in_tensor("unexpected " + what);
    }

    Place place_ = Place::file;
    bool begun_ = false;
    std::string key_, metadata_key_;
    std::set<std::string> names_, fields_;
};

class SafetensorsFile : public FlatTensorFile {
  public:
    explicit SafetensorsFile(const std::filesystem::path& path) : FlatTensorFile(path) {
        const std::uint64_t length = header_length();
        const std::string header = file_.text_at(8, length);
        const std::size_t end = header.find_last_not_of(' ');
        if (header.front() != '{' || header[end] != '}')
            throw FileError(path, "byte 8: the header must be one JSON object, padded with spaces only");

        HeaderReader reader;
        if (!nlohmann::json::sax_parse(header, &reader)) throw FileError(path, "header: " + reader.error);
        metadata_ = std::move(reader.metadata);
        place(std::move(reader.entries), 8 + length);
    }

  private:
    [[nodiscard]] std::uint64_t header_length() const {
        if (file_.size() < 8) throw FileError(path_, "too short for a safetensors file: no header length");
        std::array<std::byte, 8> word{};
        file_.read_at(0, word);
        std::uint64_t length = 0;
        for (std::size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(word[i]);
        if (length > max_header)
            throw FileError(path_, "byte 0: header length " + std::to_string(length) +
                                       " is above 100 MB; not a safetensors file?");
        if (length > file_.size() - 8)
            throw FileError(path_, "byte 0: header length " + std::to_string(length) + " reaches beyond the file");
        if (length == 0) throw FileError(path_, "byte 0: the header is empty");
        return length;
    }

    /// Stores the header's entries in the order of their data, which must cover the file without holes and overlaps.
    void place(std::vector<HeaderEntry> entries, std::uint64_t data) {
        std::ranges::stable_sort(entries, {}, &HeaderEntry::offsets);
        std::uint64_t next = 0;
        for (HeaderEntry& entry : entries) {
            finish_entry(entry.tensor, path_);
            const std::string where = "tensor '" + entry.tensor.name + "': ";
            const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
            if (end < begin) throw FileError(path_, where + "data_offsets end before they begin");
            if (begin != next)
                throw FileError(path_, where + "data begins at " + std::to_string(begin) +
                                           " but the tensor before ends at " + std::to_string(next) +
                                           " (a hole or an overlap)");
            if (end - begin != entry.tensor.bytes)
                throw FileError(path_, where + "shape and dtype take " + std::to_string(entry.tensor.bytes) +
                                           " bytes but data_offsets span " + std::to_string(end - begin));
            next = end;
            begins_.push_back(data + begin);
            tensors_.push_back(std::move(entry.tensor));
        }
        if (next != file_.size() - data)
            throw FileError(path_, "the tensors end at byte " + std::to_string(data + next) + " but the file at byte " +
                                       std::to_string(file_.size()) + "; it is truncated or has something appended");
    }
};

} // namespace

std::unique_ptr<TensorFile> open_safetensors(const std::filesystem::path& path) {
    return std::make_unique<SafetensorsFile>(path);
}

} // namespace amp
