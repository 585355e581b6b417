// The page that a tool writes: its document, before it what went wrong, after it where its numbers come from.
#pragma once

#include <ampscope/sim/io/provenance.h>
#include <ampscope/tools/document/document.h>

#include <span>

namespace amp {

/// What a page says besides the document; a terminal has had errors and warnings on standard error.
struct PageFacts {
    std::string command; ///< the command as it was typed
    std::vector<std::string> errors{}, warnings{};
    std::set<std::filesystem::path> inputs{}; ///< files, and folders of them: see source_files()
    std::vector<std::string> definitions{};
};

/// Files with their hashes, to be unfolded.
TableBlock file_table(std::span<const SourceFile> files);

/// html_of() the document with these facts. Throws FileError if an input cannot be read.
std::string page_of(Document document, const PageFacts& facts);

} // namespace amp
