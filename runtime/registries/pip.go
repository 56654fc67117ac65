package registries

import (
	"archive/zip"
	"bytes"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
)

// parsePip reads pip.conf as Python's RawConfigParser does: sections, "=" or ":", "#" and ";" at the beginning of a line,
// indented lines continue a value. Keys come back as section.key with dashes.
func parsePip(content []byte) []setting {
	var out []setting
	section, open := "", false
	for _, line := range strings.Split(strings.ReplaceAll(string(content), "\r\n", "\n"), "\n") {
		text := strings.TrimSpace(line)
		switch {
		case text == "" || text[0] == '#' || text[0] == ';':
		case (line[0] == ' ' || line[0] == '\t') && open:
			out[len(out)-1].value += "\n" + text
		case text[0] == '[':
			name, _, _ := strings.Cut(text[1:], "]")
			section, open = name, false
		default:
			at := strings.IndexAny(text, "=:")
			if at < 0 || section == "" {
				open = false
				continue
			}
			key := strings.TrimLeft(strings.ReplaceAll(strings.ToLower(strings.TrimSpace(text[:at])), "_", "-"), "-")
			out = append(out, setting{section + "." + key, strings.TrimSpace(text[at+1:])})
			open = true
		}
	}
	return out
}

// pipSections are those whose options decide where packages come from: all commands, and the ones that fetch.
var pipSections = []string{"global", "install", "download", "wheel"}

// pipLayers hold the value of each option with its source; what is set later wins.
type pipLayers map[string]origin

func (f *finder) pipFile(layers pipLayers, p string) {
	content, ok := f.read(p)
	if !ok {
		return
	}
	for _, s := range parsePip(content) {
		section, key, _ := strings.Cut(s.key, ".")
		if slices.Contains(pipSections, section) {
			layers[section+"."+key] = origin{url: s.value, source: f.show(p)}
		}
	}
}

// pipSettings reads pip's layers from the least to the most important (pip.pypa.io, "Configuration"): machine, person, site,
// PIP_CONFIG_FILE, environment. The site's file is the one beside the installation; a virtual environment in the workspace
// is the stranger's.
func (f *finder) pipSettings() pipLayers {
	layers := pipLayers{}
	own := f.env["PIP_CONFIG_FILE"]
	if own != "/dev/null" { // documented: os.devnull turns all files off
		files := append(f.xdgSystem("pip/pip.conf"), "/Library/Application Support/pip/pip.conf", "/etc/pip.conf",
			f.home(".pip/pip.conf"), f.home("Library/Application Support/pip/pip.conf"), f.xdg("pip/pip.conf"))
		for _, prefix := range f.pythons() {
			files = append(files, path.Join(prefix, "pip.conf"))
		}
		if venv := f.env["VIRTUAL_ENV"]; venv != "" {
			files = append(files, path.Join(venv, "pip.conf"))
		}
		if own != "" {
			files = append(files, own)
		}
		for _, p := range files {
			f.pipFile(layers, p)
		}
	}
	for key, name := range map[string]string{
		"index-url": "PIP_INDEX_URL", "extra-index-url": "PIP_EXTRA_INDEX_URL", "find-links": "PIP_FIND_LINKS", "no-index": "PIP_NO_INDEX",
	} {
		if f.env[name] == "" {
			continue
		}
		for _, section := range pipSections {
			delete(layers, section+"."+key)
		}
		layers["global."+key] = origin{url: f.env[name], source: name}
	}
	return layers
}

func (f *finder) pip() {
	layers := f.pipSettings()
	standard := f.pythonIndex()
	off, main := false, false
	for _, section := range pipSections {
		off = off || truth(layers[section+".no-index"].url)
	}
	for _, key := range []string{"index-url", "extra-index-url", "find-links"} {
		for _, section := range pipSections {
			o := layers[section+"."+key]
			if off && key != "find-links" {
				continue
			}
			for _, address := range strings.Fields(o.url) {
				main = main || key == "index-url"
				f.add(withFiles(origin{url: address, source: o.source}, standard))
			}
		}
	}
	if off || main || !f.hasPip() {
		return
	}
	if standard.url == "" {
		f.noDefault("pip's models/index.py")
		return
	}
	f.add(standard)
}

// truth reads a boolean of pip's (distutils' strtobool).
func truth(s string) bool {
	switch strings.ToLower(s) {
	case "y", "yes", "t", "true", "on", "1":
		return true
	}
	return false
}

// withFiles adds the download host to an index that is the default index.
func withFiles(o, standard origin) origin {
	at, err := locate(o.url)
	if err != nil || standard.url == "" {
		return o
	}
	if same, err := locate(standard.url); err == nil && same.rule == at.rule {
		o.extra = standard.extra
	}
	return o
}

func (f *finder) hasPip() bool {
	for _, base := range []string{"pip", "pip3", "python3", "python"} {
		if _, _, ok := f.program(base); ok {
			return true
		}
	}
	return false
}

// pythons are the installation folders of the Pythons on PATH. A shim (pyenv, asdf, mise) leads to the folder of versions
// beside it.
func (f *finder) pythons() []string {
	var out []string
	for _, base := range []string{"pip", "pip3", "python3", "python"} {
		named, real, ok := f.program(base)
		if !ok {
			continue
		}
		root := path.Dir(path.Dir(named))
		if path.Base(path.Dir(named)) == "shims" {
			for _, dir := range []string{path.Join(root, "versions"), path.Join(root, "installs/python")} {
				for _, version := range f.names(dir) {
					out = append(out, path.Join(dir, version))
				}
			}
			continue
		}
		out = append(out, root, path.Dir(path.Dir(real)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var pypiDeclaration = regexp.MustCompile(`(?m)^PyPI\s?=\s?PackageIndex\(\s{0,16}['"](https://[^'"\s]{1,253})['"],\s{0,16}(?:file_storage_domain=)?['"]([A-Za-z0-9.-]{1,253})['"]`)

// parsePyPI finds the default index and its download host in pip's own source.
func parsePyPI(content []byte) (index, files string) {
	if m := pypiDeclaration.FindSubmatch(content); m != nil {
		return string(m[1]), string(m[2])
	}
	return "", ""
}

const pipModule = "pip/_internal/models/index.py"

// pythonIndex is pip's default, from an installed pip or from the copy that every Python carries for ensurepip.
func (f *finder) pythonIndex() origin {
	if f.pypi != nil {
		return *f.pypi
	}
	found := f.findPyPI()
	f.pypi = &found
	return found
}

func (f *finder) findPyPI() origin {
	prefixes := f.pythons()
	managed := f.home(".local/share/uv/python")
	for _, version := range f.names(managed) {
		prefixes = append(prefixes, path.Join(managed, version))
	}
	for _, prefix := range prefixes {
		for _, version := range f.names(path.Join(prefix, "lib")) {
			if !strings.HasPrefix(version, "python3") {
				continue
			}
			if o := f.libraryIndex(path.Join(prefix, "lib", version)); o.url != "" {
				return o
			}
		}
		if o := f.wheelIndex(path.Join(prefix, "share/python-wheels")); o.url != "" {
			return o
		}
	}
	return origin{}
}

// libraryIndex looks for pip in one Python's library.
func (f *finder) libraryIndex(lib string) origin {
	for _, packages := range []string{"site-packages", "dist-packages"} {
		p := path.Join(lib, packages, pipModule)
		if content, ok := f.read(p); ok {
			if o := pypiOrigin(content, f.show(p)); o.url != "" {
				return o
			}
		}
	}
	return f.wheelIndex(path.Join(lib, "ensurepip/_bundled"))
}

func pypiOrigin(content []byte, source string) origin {
	index, files := parsePyPI(content)
	if index == "" {
		return origin{}
	}
	return origin{url: index, extra: []string{files}, source: source, normal: true}
}

// wheelIndex reads pip's source in the wheel that a Python installs pip from.
func (f *finder) wheelIndex(dir string) origin {
	for _, base := range f.names(dir) {
		if !strings.HasPrefix(base, "pip-") || !strings.HasSuffix(base, ".whl") {
			continue
		}
		p := path.Join(dir, base)
		if o := pypiOrigin(f.member(p, func(name string) bool { return name == pipModule }), f.show(p)); o.url != "" {
			return o
		}
	}
	return origin{}
}

// maxArchive bounds the archives that are opened: a wheel of pip has 2 MB.
const maxArchive = 16 << 20

// member is the content of one file in a zip archive of an installed tool; nil if it is not there.
func (f *finder) member(p string, wanted func(name string) bool) []byte {
	file, _, err := f.regular(p, maxArchive)
	if err != nil {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(contextReader{f.ctx, file}, maxArchive))
	if closed := file.Close(); err != nil || closed != nil {
		return nil
	}
	return unzip(content, wanted)
}

// unzip bounds the member that it inflates, whatever the archive says about sizes.
func unzip(archive []byte, wanted func(name string) bool) []byte {
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil
	}
	for _, m := range z.File {
		if !wanted(m.Name) {
			continue
		}
		r, err := m.Open()
		if err != nil {
			return nil
		}
		content, err := io.ReadAll(io.LimitReader(r, maxFile))
		if closed := r.Close(); err != nil || closed != nil {
			return nil
		}
		return content
	}
	return nil
}
