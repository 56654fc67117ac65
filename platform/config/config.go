// Package config reads the settings of a person (config.toml in the config folder) and of a project
// (.coworker/config.toml, which can only tighten them). It is strict: an unknown key, a wrong type or an
// impossible value is an error with file, line and column, so that a misspelt limit never means "no limit".
//
// Everything outside the walls may import it. It imports the standard library, the TOML parser and
// platform/atomicfile. What must not be added: defaults that depend on the machine (runtime/wallspec owns
// them), secrets (platform/secret), and rules of the policy.
package config

// Config is one config.toml. The zero value of a key means "not set".
type Config struct {
	Level     Level     `toml:"level"`   // weakest level at which a session may start
	Backend   Backend   `toml:"backend"` // which builder of walls to use
	Exec      Exec      `toml:"exec"`
	Container Container `toml:"container"`
	Net       Net       `toml:"net"`
	Limits    Limits    `toml:"limits"`
	Scan      Scan      `toml:"scan"`
	Sweep     Sweep     `toml:"sweep"`
	Cache     Cache     `toml:"cache"`

	// Ceiling holds what a project file asked for where the person set nothing. It lowers the defaults of
	// the machine, which are not known here, and never a flag: a flag is the word of the person.
	Ceiling Limits `toml:"-"`
	// Source is the file the settings came from, for messages.
	Source string `toml:"-"`
}

// Exec says what sessions may see and change. Paths are absolute or begin with "~/".
type Exec struct {
	Write      []Path `toml:"write"`      // folders trusted by path: writable without -w, as is all below them
	Read       []Path `toml:"read"`       // visible in every session
	Hide       []Path `toml:"hide"`       // never visible, whatever else is asked for
	Env        []Name `toml:"env"`        // variables to pass, beside the built-in list
	Toolchains []Path `toml:"toolchains"` // further tool folders, visible read-only
}

// Container holds what only the backend container can do.
type Container struct {
	AppArmor Label `toml:"apparmor"` // profile that its processes run under; it must be loaded
	SELinux  Label `toml:"selinux"`  // label that they run with
}

// Net says what sessions with a network may reach. Without --net or --allow a session has none, whatever stands here.
type Net struct {
	Allow          []Rule `toml:"allow"`           // rules of every session with a network, in the grammar of --allow
	Deny           []Rule `toml:"deny"`            // never reached; a project file may add some
	Upstream       string `toml:"upstream"`        // the company's proxy: "environment" (default), "none" or http://HOST:PORT
	UpstreamSecret string `toml:"upstream_secret"` // name of the secret that holds USER:PASSWORD for it
	Requests       []Rule `toml:"requests"`        // hosts whose TLS is opened: "GET,HEAD api.example.com/path"
}

// Rule is one rule about hosts. What it means is netproxy's to say; here it is one line of text.
type Rule string

// Limits bound what one session may use.
type Limits struct {
	Processes Count `toml:"processes"`
	Memory    Size  `toml:"memory"`
	CPUs      Cores `toml:"cpus"`
	OpenFiles Count `toml:"open_files"`
	FileSize  Size  `toml:"file_size"`
	Tmp       Size  `toml:"tmp"`
}

// Scan bounds the walk that finds protected and secret files before a session starts.
type Scan struct {
	Exclude []Path `toml:"exclude"` // folders that are made invisible instead of being walked
	Entries Count  `toml:"entries"` // at most so many names in one tree
	Depth   Count  `toml:"depth"`   // at most so many folders deep
}

// Sweep bounds the look for protected names that appeared while a command ran.
type Sweep struct {
	Entries Count    `toml:"entries"` // at most so many names after one command
	Timeout Duration `toml:"timeout"` // a sweep that takes longer ends the session
}

// Cache rules the private homes.
type Cache struct {
	Share *bool    `toml:"share"` // host caches show through the private ones; default true
	Size  Size     `toml:"size"`  // `coworker cache prune` keeps the private homes below this
	Age   Duration `toml:"age"`   // and removes homes that were not used for so long
}

// ShareHost reports whether host caches show through the private ones.
func (c Cache) ShareHost() bool { return c.Share == nil || *c.Share }
