package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// entry explains one key. The table is the documentation of the file; a test compares it with the struct.
type entry struct {
	key     string // within its table; "" begins a table
	example string // written as a comment where the key is not set
	text    string
}

var entries = []entry{
	{"level", `"enforced"`, "The weakest level at which a session may start: direct, partial, enforced, hardened."},
	{"backend", `"auto"`, "Who builds the walls: auto, native (namespaces), container (as native, in a container with device rules; root), bare (inside containers; partial at best)."},
	{"", "exec", ""},
	{"write", `["~/src"]`, "Folders trusted by path: writable without -w, as is all below them."},
	{"read", `["~/reference"]`, "Visible read-only in every session."},
	{"hide", `["~/src/private"]`, "Never visible, whatever else is asked for."},
	{"env", `["GOPROXY"]`, "Variables to pass, beside the built-in list. Secrets are named with --env-secret."},
	{"toolchains", `["/srv/sdk"]`, "Further tool folders, visible read-only at their own path."},
	{"", "container", "What only the backend container can do."},
	{"apparmor", `"coworker-cell"`, "AppArmor profile that launcher, keeper and cell run under; it must be loaded, and allow mounts."},
	{"selinux", `"system_u:system_r:container_t:s0"`, "SELinux label that they run with."},
	{"", "net", "What sessions with a network may reach. Without --net or --allow a session has none."},
	{"allow", `["registry.example.com", "git.corp:443=10.0.0.0/8"]`, "Rules of every such session, as with --allow."},
	{"deny", `["*.tracker.example"]`, "Never reached, whatever is allowed."},
	{"upstream", `"environment"`, "The company's proxy: environment (HTTPS_PROXY), none, or http://HOST:PORT."},
	{"upstream_secret", `"company-proxy"`, "The secret that holds USER:PASSWORD for it (coworker secrets set company-proxy --unbound)."},
	{"requests", `["GET,HEAD api.example.com/repos/acme"]`, "Open the TLS of this host, and let only these requests through."},
	{"", "limits", "A limit set here is required: a session that cannot have it does not start."},
	{"processes", `4096`, ""},
	{"memory", `"8GiB"`, ""},
	{"cpus", `2.0`, ""},
	{"open_files", `65536`, "For each process."},
	{"file_size", `"16GiB"`, "For each file."},
	{"tmp", `"4GiB"`, "/tmp, /dev/shm, /run and the root of the private home together."},
	{"", "scan", "The walk that finds protected and secret files before a session starts."},
	{"exclude", `["~/src/data"]`, "Folders that are made invisible instead of being walked."},
	{"entries", `2000000`, "At most so many names in one tree."},
	{"depth", `128`, "At most so many folders deep."},
	{"", "sweep", "The look for protected names that appeared while a command ran."},
	{"entries", `200000`, "At most so many names after one command."},
	{"timeout", `"10s"`, "A sweep that takes longer ends the session."},
	{"", "cache", "Private homes and what shows through them."},
	{"share", `true`, "Host caches are the read-only lower layer of the private ones."},
	{"size", `"20GiB"`, "coworker cache prune keeps the private homes below this,"},
	{"age", `"30d"`, "and removes homes that were not used for so long."},
}

const preamble = `# Settings of Coworker. Every key is optional; what is commented out shows the form of a value.
# Sizes: "2GiB", "512MiB". Durations: "90s", "1h30m", "30d". Paths begin with / or ~/.
`

// Render writes c as a file that explains every key. Parse reads it back as c.
func Render(c Config) []byte {
	var b strings.Builder
	b.WriteString(preamble)
	table := reflect.ValueOf(c)
	for _, e := range entries {
		if e.key == "" {
			fmt.Fprintf(&b, "\n[%s]\n", e.example)
			comment(&b, e.text)
			table = field(reflect.ValueOf(c), e.example)
			continue
		}
		comment(&b, e.text)
		if v := field(table, e.key); v.IsZero() {
			fmt.Fprintf(&b, "# %s = %s\n", e.key, e.example)
		} else {
			fmt.Fprintf(&b, "%s = %s\n", e.key, literal(v))
		}
	}
	return []byte(b.String())
}

func comment(b *strings.Builder, text string) {
	if text != "" {
		b.WriteString("# " + text + "\n")
	}
}

// field finds the field with the given TOML name; the table above names only existing ones, which a test holds.
func field(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("toml") == name {
			return v.Field(i)
		}
	}
	return reflect.ValueOf("")
}

// literal writes one value as TOML.
func literal(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Size:
		return quote(x.String())
	case Duration:
		return quote(x.String())
	case Count:
		return strconv.FormatInt(int64(x), 10)
	case Cores:
		return quote(strconv.FormatFloat(float64(x), 'g', -1, 64)) // as text: TOML has no 1e-05 without a dot rule to mind
	case *bool:
		return strconv.FormatBool(*x)
	}
	if v.Kind() != reflect.Slice {
		return quote(v.String())
	}
	var items []string
	for i := range v.Len() {
		items = append(items, quote(v.Index(i).String()))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// quote writes a basic string (TOML 1.0). Go's own quoting differs: it has \x and \a, which TOML lacks.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}
