// What every reader must do with the golden files of tests/data/io: read them as NumPy and PyTorch do, and survive any
// damage to them.
#pragma once

#include "io_files.h"
#include "sanitized.h"

#include <algorithm>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace amp::test {

inline nlohmann::json golden_files(const std::string& extension) {
    const auto all = nlohmann::json::parse(read_file(golden("golden.json"))).at("files");
    auto chosen = nlohmann::json::object();
    for (const auto& [name, expected] : all.items())
        if (fs::path(name).extension() == extension) chosen[name] = expected;
    REQUIRE(!chosen.empty());
    return chosen;
}

inline OpenOptions golden_options(const nlohmann::json& expected) {
    OpenOptions options;
    if (!expected.at("as").is_null()) options.as = parse_dtype(expected.at("as").get<std::string>());
    return options;
}

inline std::string hex(std::string_view bytes) {
    std::string text;
    for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return text;
}

/// Checks names, dtypes, shapes and bytes of the golden files of one kind, and the notes on what is left out.
inline void check_golden(const std::string& extension) {
    const auto files = golden_files(extension);
    for (const auto& item : files.items()) {
        const std::string& name = item.key();
        const auto& expected = item.value();
        CAPTURE(name);
        const auto file = open_tensor_file(golden(name), golden_options(expected));
        REQUIRE(file->tensors().size() == expected.at("tensors").size());
        for (std::size_t i = 0; i < file->tensors().size(); ++i) {
            const TensorEntry& entry = file->tensors()[i];
            CAPTURE(entry.name);
            REQUIRE(expected.at("tensors").contains(entry.name));
            const auto& tensor = expected.at("tensors").at(entry.name);
            CHECK(info(entry.dtype).name == tensor.at("dtype").get<std::string>());
            CHECK(entry.codes.has_value() == tensor.contains("codes"));
            CHECK(entry.stored().name == tensor.value("codes", tensor.at("dtype").get<std::string>()));
            CHECK(entry.shape == tensor.at("shape").get<std::vector<std::uint64_t>>());
            CHECK(entry.storage_order == tensor.value("storage_order", false));
            CHECK(hex(tensor_bytes(*file, i)) == tensor.at("bytes").get<std::string>());
            CHECK(hex(tensor_bytes(*file, i, 24)) == tensor.at("bytes").get<std::string>());
        }
        REQUIRE(file->notes().size() == expected.at("skipped").size());
        for (std::size_t i = 0; i < file->notes().size(); ++i)
            CHECK(file->notes()[i].find(expected.at("skipped")[i].get<std::string>()) != std::string::npos);
    }
}

/// Reads every prefix of every golden file of one kind, and each file with three changes to every byte. Each must give
/// a complete read, or an error of one line that names the file, never another exception. Prefixes must be errors.
inline void check_damage(const std::string& extension) {
    MemoryFile memory(extension);
    std::size_t cases = 0, mismatches = 0, number = 0;
    const auto files = golden_files(extension);
    for (const auto& item : files.items()) {
        const std::string& name = item.key();
        const auto& expected = item.value();
        CAPTURE(name);
        const OpenOptions options = golden_options(expected);
        const auto survives = [&](std::string_view bytes) {
            const fs::path& path = memory.set(bytes);
            const std::string error = error_of(path, options);
            ++cases;
            if (!error.empty() && (!error.starts_with(path.string() + ": ") || error.find('\n') != std::string::npos))
                ++mismatches;
            return !error.empty();
        };
        std::string bytes = read_file(golden(name));
        REQUIRE(!survives(bytes));
        for (std::size_t size = 0; size < bytes.size(); ++size)
            if (is_due(number++) && !survives(std::string_view(bytes).substr(0, size))) ++mismatches;
        for (char& byte : bytes) {
            const char original = byte;
            for (const int change : {0x01, 0x80, 0xff}) {
                if (!is_due(number++)) continue;
                byte = static_cast<char>(original ^ change);
                survives(bytes);
            }
            byte = original;
        }
    }
    fmt::print("proof: damaged {} files are refused or read whole: {} cases, {} mismatches\n", extension, cases,
               mismatches);
    CHECK(mismatches == 0);
}

/// A file that breaks a rule, and a part of the message that names the rule.
struct Lie {
    std::string bytes, says;
};

inline void check_lies(const std::string& extension, const std::vector<Lie>& lies) {
    MemoryFile memory(extension);
    std::size_t mismatches = 0;
    for (const Lie& lie : lies) {
        const std::string error = error_of(memory.set(lie.bytes));
        CAPTURE(lie.says);
        const bool named = error.find(lie.says) != std::string::npos;
        CHECK_MESSAGE(named, error.substr(0, 200));
        mismatches += named ? 0 : 1;
    }
    fmt::print("proof: lies of {} files are refused by name: {} cases, {} mismatches\n", extension, lies.size(),
               mismatches);
}

/// Checks that every recorded file with that extension (if the recordings are there) has the tensors of the safetensors
/// file of the same step.
inline void check_recordings(const char* extension) {
    const fs::path folder = real_recordings();
    if (folder.empty()) return;
    std::size_t tensors = 0;
    for (const fs::directory_entry& item : fs::recursive_directory_iterator(folder)) {
        if (item.path().extension() != extension) continue;
        const auto file = open_tensor_file(item.path()),
                   other = open_tensor_file(fs::path(item.path()).replace_extension(".safetensors"));
        for (std::size_t i = 0; i < file->tensors().size(); ++i, ++tensors) {
            const auto twin = std::ranges::find(other->tensors(), file->tensors()[i].name, &TensorEntry::name);
            REQUIRE(twin != other->tensors().end());
            CHECK(file->tensors()[i].shape == twin->shape);
            CHECK(tensor_bytes(*file, i) ==
                  tensor_bytes(*other, static_cast<std::size_t>(twin - other->tensors().begin())));
        }
    }
    CHECK(tensors > 60);
}

} // namespace amp::test
