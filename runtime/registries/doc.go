// Package registries says which hosts this machine's own package managers (npm, pnpm, yarn, pip, uv, go, cargo, maven, gem)
// are configured to use. That is what `--allow registries` means.
//
// No host stands in this source. A host comes from the person's environment, from the person's or the machine's settings, or,
// where a manager is installed and nothing is configured, from the installed manager's own files: npm's definitions.js,
// yarn's cli.js, pip's models/index.py (which names the download host beside the index), go.env in GOROOT, the index URL
// inside the cargo binary, the super POM inside maven-model-builder, RubyGems' defaults.rb. Two things cannot be read that
// way. uv documents pip's default as its own, so pip's file answers for it (any Python on the machine carries a copy). The
// download host of a cargo registry is in the config.json of its index; cargo keeps a copy in CARGO_HOME once it has used
// the index outside, and until then a note says so and the refusal of the download names the host.
//
// Nothing is started. Many a tool on a PATH is a shim that chooses what it runs by files of the working folder or by
// variables, and starting seven of them would cost more than the session. Reading is also why there is nothing to cache but
// the search through large binaries.
//
// Files of a workspace are a stranger's and count for nothing here, not even through a symbolic link, a variable or a PATH
// entry that leads into it; ProjectNotes only tells the person what they ask for. A credential in a URL is dropped; that
// there was one is all an Entry says.
//
// The command line (cmd/coworker) and runtime packages outside the wall may import it. What does not belong here: credentials
// (platform/secret), asking the person, and any network access.
package registries
