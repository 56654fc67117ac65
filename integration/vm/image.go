package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// An Image is an unpacked kernel package.
type Image struct {
	Kernel  Kernel    `json:"-"`
	Release string    `json:"release"`
	Package string    `json:"package"`
	Suite   string    `json:"suite"`
	Fetched time.Time `json:"fetched"`
	// Dir is where the package was unpacked.
	Dir string `json:"-"`
}

// Vmlinuz is the kernel itself.
func (i Image) Vmlinuz() string { return filepath.Join(i.Dir, "boot", "vmlinuz-"+i.Release) }

// modulesDir is below /usr since Debian 13.
func (i Image) modulesDir() string {
	merged := filepath.Join(i.Dir, "usr", "lib", "modules", i.Release)
	if _, err := os.Stat(merged); err == nil {
		return merged
	}
	return filepath.Join(i.Dir, "lib", "modules", i.Release)
}

// CacheVar names the variable that moves the cache.
const CacheVar = "COWORKER_VM_CACHE"

// imageFile is written last: an image without it is incomplete.
const imageFile = "image.json"

func cacheDir() (string, error) {
	if dir := os.Getenv(CacheVar); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for kernels, set %s: %w", CacheVar, err)
	}
	return filepath.Join(base, "coworker-vm"), nil
}

// Ensure returns the kernel from the cache, or downloads and unpacks it. A
// cached kernel stays until its folder is removed: a matrix that changes under
// a commit explains nothing.
func Ensure(ctx context.Context, k Kernel) (Image, error) {
	cache, err := cacheDir()
	if err != nil {
		return Image{}, err
	}
	final := filepath.Join(cache, k.Name)
	if image, err := load(k, final); err == nil {
		return image, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Image{}, fmt.Errorf("cached kernel %s (remove %s to download it again): %w", k.Name, final, err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Image{}, err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(work)
	unpacked, err := fetch(ctx, k, work)
	if err != nil {
		return Image{}, fmt.Errorf("kernel %s: %w", k.Name, err)
	}
	// Another test process may have been faster; its image is as good.
	if err := os.Rename(unpacked, final); err != nil && !errors.Is(err, fs.ErrExist) {
		return Image{}, err
	}
	return load(k, final)
}

func load(k Kernel, dir string) (Image, error) {
	image := Image{Kernel: k, Dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, imageFile))
	if err != nil {
		return image, err
	}
	if err := json.Unmarshal(data, &image); err != nil {
		return image, fmt.Errorf("%s: %w", imageFile, err)
	}
	if !strings.HasPrefix(image.Release, k.Name+".") {
		return image, fmt.Errorf("release %q is not of the line %s", image.Release, k.Name)
	}
	for _, path := range []string{image.Vmlinuz(), image.modulesDir()} {
		// Not fs.ErrNotExist: a broken cache is not an empty one.
		if _, err := os.Stat(path); err != nil {
			return image, fmt.Errorf("damaged image: %v", err)
		}
	}
	return image, nil
}

// fetch downloads and unpacks the kernel below work and returns the folder.
func fetch(ctx context.Context, k Kernel, work string) (string, error) {
	mirrors, err := mirrorURIs(ctx)
	if err != nil {
		return "", err
	}
	var tried []error
	for _, suite := range k.Suites {
		for _, uri := range mirrors {
			dir, err := fetchFrom(ctx, k, aptSource{uri, suite, work})
			if err == nil {
				return dir, nil
			}
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			tried = append(tried, fmt.Errorf("%s of %s: %w", suite, uri, err))
		}
	}
	return "", fmt.Errorf("%w: %w", ErrNoKernel, errors.Join(tried...))
}

func fetchFrom(ctx context.Context, k Kernel, src aptSource) (string, error) {
	if err := src.update(ctx); err != nil {
		return "", err
	}
	pkg, err := src.dependency(ctx, k.Package)
	if err != nil {
		return "", err
	}
	deb, err := src.download(ctx, pkg)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(src.work, "image")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if _, err := run(ctx, src.work, "dpkg-deb", "-x", deb, dir); err != nil {
		return "", err
	}
	image := Image{
		Release: strings.TrimPrefix(pkg, imagePrefix), Package: filepath.Base(deb),
		Suite: src.suite, Fetched: time.Now().UTC(),
	}
	data, err := json.MarshalIndent(image, "", "\t")
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, imageFile), data, 0o644)
}

// mirrorURIs asks apt which archives it is configured with, so that whoever uses
// a nearer or a private mirror uses it here too.
func mirrorURIs(ctx context.Context) ([]string, error) {
	out, err := run(ctx, "", "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return nil, err
	}
	uris := strings.Fields(string(out))
	slices.Sort(uris)
	uris = slices.Compact(uris)
	if len(uris) == 0 {
		return nil, fmt.Errorf("%w: apt has no package sources", ErrNoKernel)
	}
	return uris, nil
}

// keyring is the trust anchor of every suite that Debian still signs; it is part
// of the package debian-archive-keyring.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// An aptSource is one suite of one mirror, with package lists of its own below
// work. The machine's lists, sources and installed packages stay out of it; its
// proxies and credentials apply.
type aptSource struct{ uri, suite, work string }

func (s aptSource) options() []string {
	opts := []string{}
	for _, o := range []string{
		"Dir::Etc::sourcelist=" + filepath.Join(s.work, "sources.list"),
		"Dir::Etc::sourceparts=/dev/null",
		"Dir::Etc::preferences=/dev/null",
		"Dir::Etc::preferencesparts=/dev/null",
		"Dir::State=" + filepath.Join(s.work, "state"),
		"Dir::State::status=/dev/null",
		"Dir::Cache=" + filepath.Join(s.work, "cache"),
		// The download user cannot enter a private cache folder. Signatures are
		// checked either way.
		"APT::Sandbox::User=root",
		"Acquire::Retries=3",
	} {
		opts = append(opts, "-o", o)
	}
	return opts
}

func (s aptSource) apt(ctx context.Context, tool string, args ...string) ([]byte, error) {
	return run(ctx, s.work, tool, append(s.options(), args...)...)
}

func (s aptSource) update(ctx context.Context) error {
	if _, err := os.Stat(keyring); err != nil {
		return fmt.Errorf("%w: package debian-archive-keyring: %w", ErrMissingTool, err)
	}
	for _, dir := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(s.work, dir), 0o755); err != nil {
			return err
		}
	}
	// target= leaves out what other software on this machine asks of every source,
	// such as icons.
	line := fmt.Sprintf("deb [signed-by=%s arch=amd64 target=Packages lang=none] %s %s main\n", keyring, s.uri, s.suite)
	if err := os.WriteFile(filepath.Join(s.work, "sources.list"), []byte(line), 0o644); err != nil {
		return err
	}
	// Without error-mode a mirror that is away is a warning.
	_, err := s.apt(ctx, "apt-get", "update", "--error-on=any")
	return err
}

const imagePrefix = "linux-image-"

var dependsOnImage = regexp.MustCompile(`(?m)^Depends:.*\b(linux-image-[0-9][a-z0-9.+-]*)`)

// dependency resolves a metapackage to the kernel package it depends on.
func (s aptSource) dependency(ctx context.Context, meta string) (string, error) {
	out, err := s.apt(ctx, "apt-cache", "show", "--no-all-versions", meta)
	if err != nil {
		return "", err
	}
	m := dependsOnImage.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("package %s depends on no kernel image", meta)
	}
	return string(m[1]), nil
}

func (s aptSource) download(ctx context.Context, pkg string) (string, error) {
	if _, err := s.apt(ctx, "apt-get", "download", pkg); err != nil {
		return "", err
	}
	debs, err := filepath.Glob(filepath.Join(s.work, pkg+"_*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("download of %s left %d packages", pkg, len(debs))
	}
	return debs[0], nil
}
