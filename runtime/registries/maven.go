package registries

import (
	"encoding/xml"
	"path"
	"regexp"
	"slices"
	"strings"
)

// mavenSettings is the part of settings.xml about repositories (maven.apache.org, "Settings Reference").
type mavenSettings struct {
	Offline  bool          `xml:"offline"`
	Mirrors  []mavenMirror `xml:"mirrors>mirror"`
	Profiles []struct {
		ID      string            `xml:"id"`
		Repos   []mavenRepository `xml:"repositories>repository"`
		Plugins []mavenRepository `xml:"pluginRepositories>pluginRepository"`
	} `xml:"profiles>profile"`
}

type mavenMirror struct {
	ID      string `xml:"id"`
	URL     string `xml:"url"`
	Of      string `xml:"mirrorOf"`
	Blocked bool   `xml:"blocked"`
}

type mavenRepository struct {
	ID  string `xml:"id"`
	URL string `xml:"url"`
}

// parseMaven reads settings.xml.
func parseMaven(content []byte) (mavenSettings, error) {
	var s mavenSettings
	err := xml.Unmarshal(content, &s)
	return s, err
}

// parseSuperPOM finds the repositories that every project inherits.
func parseSuperPOM(content []byte) []mavenRepository {
	var pom struct {
		Repos   []mavenRepository `xml:"repositories>repository"`
		Plugins []mavenRepository `xml:"pluginRepositories>pluginRepository"`
	}
	if xml.Unmarshal(content, &pom) != nil {
		return nil
	}
	return append(pom.Repos, pom.Plugins...)
}

// covers is mirrorOf (maven.apache.org, "Using Mirrors for Repositories"): ids, *, external:*, external:http:*, and !id.
func (m mavenMirror) covers(r mavenRepository) bool {
	covered := false
	for _, pattern := range strings.Split(m.Of, ",") {
		switch pattern = strings.TrimSpace(pattern); {
		case pattern == "!"+r.ID:
			return false
		case pattern == r.ID, pattern == "*":
			covered = true
		case pattern == "external:*":
			covered = covered || !localRepository(r.URL)
		case pattern == "external:http:*":
			covered = covered || !localRepository(r.URL) && strings.HasPrefix(r.URL, "http:")
		}
	}
	return covered
}

func localRepository(address string) bool {
	return strings.HasPrefix(address, "file:") || strings.HasPrefix(address, "http://localhost") || strings.HasPrefix(address, "http://127.0.0.1")
}

var mavenVariable = regexp.MustCompile(`\$\{env\.([A-Za-z_][A-Za-z0-9_]{0,127})\}`)

// trimmed is a value of an element with ${env.NAME} replaced.
func (f *finder) trimmed(value string) string {
	return mavenVariable.ReplaceAllStringFunc(strings.TrimSpace(value), func(ref string) string {
		if v, ok := f.env[mavenVariable.FindStringSubmatch(ref)[1]]; ok {
			return v
		}
		return ref
	})
}

// mavenHome is the installed Maven; Debian's bin/mvn is a link into it.
func (f *finder) mavenHome() string {
	for _, name := range []string{"MAVEN_HOME", "M2_HOME"} {
		if path.IsAbs(f.env[name]) {
			return f.env[name]
		}
	}
	if _, real, ok := f.program("mvn"); ok {
		return path.Dir(path.Dir(real))
	}
	return ""
}

// mavenSearch collects settings of both files; the person's mirrors come first and so win.
type mavenSearch struct {
	mirrors []mavenMirror
	repos   []mavenRepository
	source  map[string]string // of a URL
	offline bool
}

func (f *finder) mavenFile(s *mavenSearch, p string) {
	content, ok := f.read(p)
	if !ok {
		return
	}
	settings, err := parseMaven(content)
	if err != nil {
		f.note(f.show(p) + " is not valid XML")
		return
	}
	s.offline = s.offline || settings.Offline
	keep := func(address string) string {
		address = f.trimmed(address)
		if s.source[address] == "" {
			s.source[address] = f.show(p)
		}
		return address
	}
	for _, m := range settings.Mirrors {
		m.ID = strings.TrimSpace(m.ID)
		if slices.ContainsFunc(s.mirrors, func(have mavenMirror) bool { return have.ID == m.ID }) {
			continue // the person's mirror of this name replaces the machine's
		}
		m.URL = keep(m.URL)
		s.mirrors = append(s.mirrors, m)
	}
	for _, profile := range settings.Profiles {
		for _, r := range append(profile.Repos, profile.Plugins...) {
			s.repos = append(s.repos, mavenRepository{strings.TrimSpace(r.ID), keep(r.URL)})
		}
	}
}

func (f *finder) maven() {
	home := f.mavenHome()
	s := &mavenSearch{source: map[string]string{}}
	f.mavenFile(s, f.home(".m2/settings.xml"))
	if home != "" {
		f.mavenFile(s, path.Join(home, "conf/settings.xml"))
	}
	if s.offline {
		return
	}
	for _, m := range s.mirrors {
		if !m.Blocked { // a blocked mirror is Maven's way to refuse a repository (since 3.8.1)
			f.add(origin{url: m.URL, scope: m.ID, source: s.source[m.URL]})
		}
	}
	mirrored := func(r mavenRepository) bool {
		return slices.ContainsFunc(s.mirrors, func(m mavenMirror) bool { return m.covers(r) })
	}
	for _, r := range s.repos {
		if !mirrored(r) {
			f.add(origin{url: r.URL, scope: r.ID, source: s.source[r.URL]})
		}
	}
	if home != "" {
		f.mavenDefault(home, append(s.repos, mavenRepository{}), mirrored)
	}
}

var superPOM = regexp.MustCompile(`^org/apache/maven/(model|internal/impl)/pom-4\.[0-9]+\.[0-9]+\.xml$`)

// mavenDefault reads the super POM out of the installed Maven. A repository of the settings with the same id replaces one
// of it.
func (f *finder) mavenDefault(home string, configured []mavenRepository, mirrored func(mavenRepository) bool) {
	lib := path.Join(home, "lib")
	for _, base := range f.names(lib) {
		if !strings.HasPrefix(base, "maven-model-builder") && !strings.HasPrefix(base, "maven-impl") || !strings.HasSuffix(base, ".jar") {
			continue
		}
		repos := parseSuperPOM(f.member(path.Join(lib, base), superPOM.MatchString))
		for _, r := range repos {
			replaced := slices.ContainsFunc(configured, func(c mavenRepository) bool { return c.ID == r.ID })
			if !replaced && !mirrored(r) {
				f.add(origin{url: strings.TrimSpace(r.URL), scope: r.ID, source: f.show(path.Join(lib, base)), normal: true})
			}
		}
		if len(repos) > 0 {
			return
		}
	}
	f.noDefault("the super POM in Maven's lib folder")
}
