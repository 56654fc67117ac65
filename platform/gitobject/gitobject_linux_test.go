package gitobject

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"coworker/platform/workfs"
)

// repo is a repository that real git makes and reads: the oracle.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T, args ...string) repo {
	t.Helper()
	r := repo{t, t.TempDir()}
	r.git(append([]string{"init", "-q"}, args...)...)
	return r
}

func (r repo) git(args ...string) string {
	r.t.Helper()
	return r.gitInput("", args...)
}

func (r repo) gitInput(input string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(input)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "LC_ALL=C"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

func (r repo) write(name, content string) string {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return content
}

func (r repo) commit(name, content string) {
	r.t.Helper()
	r.write(name, content)
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "m")
}

func (r repo) ask(gitDir, content string) (bool, error) {
	r.t.Helper()
	root, err := workfs.OpenRoot(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	defer root.Close()
	return Holds(context.Background(), root, gitDir, []byte(content))
}

func (r repo) want(held bool, content string) {
	r.t.Helper()
	got, err := r.ask(".git", content)
	if got != held || err != nil {
		r.t.Errorf("Holds(%.40q) = %v, %v; want %v", content, got, err, held)
	}
}

// refused wants a "no" for a reason.
func (r repo) refused(reason error, content string) {
	r.t.Helper()
	got, err := r.ask(".git", content)
	if got || !errors.Is(err, reason) {
		r.t.Errorf("Holds(%.40q) = %v, %v; want false and %v", content, got, err, reason)
	}
}

func randomText(seed uint64, n int) string {
	source := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "KEY_%d=%016x\n", b.Len(), source.Uint64())
	}
	return b.String()[:n]
}

func TestAgainstGit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			r := newRepo(t, "--object-format="+format)
			contents := map[string]string{
				"empty": "", "nul": "a\x00b", "one": "x", "env": "TOKEN=hunter2\n",
				"text": randomText(1, 10_000), "large": randomText(2, MaxContent-1),
			}
			for name, content := range contents {
				r.commit(name, content)
			}
			check := func() {
				t.Helper()
				for _, content := range contents {
					r.want(true, content)
					r.want(false, content+"\n")
				}
				r.want(false, "TOKEN=hunter3\n")
				r.want(false, randomText(2, MaxContent-2)+"!")
			}
			check()
			r.git("gc", "-q", "--prune=now")
			if left, _ := filepath.Glob(filepath.Join(r.dir, ".git/objects/[0-9a-f][0-9a-f]")); len(left) != 0 {
				t.Fatalf("gc left loose objects, so packs are not tested: %v", left)
			}
			check()
		})
	}
}

// Removed from the working tree and from HEAD, but still in the history: that is what the question is about.
func TestOldVersions(t *testing.T) {
	r := newRepo(t)
	r.commit(".env", "OLD=1\n")
	r.commit(".env", "NEW=1\n")
	r.git("rm", "-q", ".env")
	r.git("commit", "-q", "-m", "gone")
	r.want(true, "OLD=1\n")
	r.git("gc", "-q")
	r.want(true, "OLD=1\n")
	r.want(true, "NEW=1\n")
	r.want(false, "NEW=2\n")
}

func TestDeltas(t *testing.T) {
	for _, refDelta := range []bool{false, true} {
		t.Run(fmt.Sprintf("ref-delta=%v", refDelta), func(t *testing.T) {
			r := newRepo(t)
			r.git("config", "repack.useDeltaBaseOffset", fmt.Sprint(!refDelta))
			text := randomText(3, 60_000)
			var versions []string
			for i := range 60 {
				at := i * 900
				text = text[:at] + fmt.Sprintf("CHANGED=%d\n", i) + text[at:]
				versions = append(versions, text)
				r.write("f", text)
				r.git("hash-object", "-w", "f")
				r.git("add", "f")
				r.git("commit", "-q", "-m", "m")
			}
			r.git("repack", "-q", "-a", "-d", "-f", "--depth=50", "--window=50")
			idx, _ := filepath.Glob(filepath.Join(r.dir, ".git/objects/pack/*.idx"))
			listing := r.git("verify-pack", "-v", idx[0])
			if !strings.Contains(listing, "chain length = 2") {
				t.Fatalf("git made no delta chains:\n%.500s", listing)
			}
			for i, v := range versions {
				r.want(true, v)
				r.want(false, v[:len(v)-2]+fmt.Sprintf("%02d", i))
			}
		})
	}
}

// A chain of the allowed length is resolved; one more is not, and says so.
func TestDeepChain(t *testing.T) {
	for _, extra := range []int{0, 1} {
		content := []byte("A=0\n")
		entries := [][]byte{packed(t, typeBlob, len(content), nil, content)}
		at := uint64(packHeader)
		for i := range maxChain + extra {
			previous := entries[len(entries)-1]
			at += uint64(len(previous))
			content = append(content, byte('a'+i%26)) // copy all, then insert one byte
			delta := []byte{byte(len(content) - 1), byte(len(content)), 0x90, byte(len(content) - 1), 1, content[len(content)-1]}
			entries = append(entries, packed(t, typeOfsDelta, len(delta), []byte{byte(len(previous))}, delta))
		}
		r := plant(t, makeIndex([]item{{blobID(string(content)), at}}), makePack(entries...))
		if extra == 0 {
			r.want(true, string(content))
		} else {
			r.refused(ErrWork, string(content))
		}
	}
}

func TestManyPacksAndMultiPackIndex(t *testing.T) {
	r := newRepo(t)
	for i := range 30 {
		r.commit("f", fmt.Sprintf("A=%d\n", i))
		r.git("repack", "-q", "-d")
	}
	check := func() {
		t.Helper()
		for i := range 30 {
			r.want(true, fmt.Sprintf("A=%d\n", i))
			r.want(false, fmt.Sprintf("B=%d\n", i))
		}
	}
	check()
	r.git("multi-pack-index", "write")
	check()
	r.git("multi-pack-index", "repack")
	r.git("multi-pack-index", "expire")
	check()
}

// One pack of 50,000 objects, by fast-import, with the offsets above 256 bytes forced into the 64-bit table as in packs
// over 2 GiB.
func TestLargeIndex(t *testing.T) {
	r := newRepo(t)
	var stream strings.Builder
	for i := range 50_000 {
		content := fmt.Sprintf("N=%d\n", i)
		fmt.Fprintf(&stream, "blob\ndata %d\n%s\n", len(content), content)
	}
	r.gitInput(stream.String(), "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet")
	packs, _ := filepath.Glob(filepath.Join(r.dir, ".git/objects/pack/*.pack"))
	if len(packs) != 1 {
		t.Fatalf("packs: %v", packs)
	}
	check := func() {
		t.Helper()
		for i := 0; i < 50_000; i += 997 {
			r.want(true, fmt.Sprintf("N=%d\n", i))
			r.want(false, fmt.Sprintf("M=%d\n", i))
		}
	}
	check()
	os.Remove(strings.TrimSuffix(packs[0], ".pack") + ".idx")
	r.git("index-pack", "--index-version=2,0x100", packs[0])
	check()
	os.Remove(strings.TrimSuffix(packs[0], ".pack") + ".idx")
	r.git("index-pack", "--index-version=1", packs[0])
	r.refused(ErrFormat, "N=1\n")
}

// A sparse pack of more than 4 GiB whose only object lies behind that.
func TestOffsetBeyond4GiB(t *testing.T) {
	r := newRepo(t)
	const at = 5<<30 + 12
	content := "FAR=1\n"
	var body bytes.Buffer
	body.WriteByte(typeBlob<<4 | byte(len(content)))
	body.Write(deflate(t, []byte(content)))
	base := filepath.Join(r.dir, ".git/objects/pack/pack-far")
	f, err := os.Create(base + ".pack")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Write([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"))
	f.WriteAt(append(body.Bytes(), make([]byte, sha1.Size)...), at)
	if err := os.WriteFile(base+".idx", makeIndex([]item{{blobID(content), at}, {blobID("first"), packHeader}}), 0o600); err != nil {
		t.Fatal(err)
	}
	r.want(true, content)
	r.want(false, "FAR=2\n")
}

func TestWorktreesAndSubmodules(t *testing.T) {
	r := newRepo(t)
	r.commit("f", "MAIN=1\n")
	if err := os.Mkdir(filepath.Join(r.dir, ".git/modules"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.git("clone", "-q", "--separate-git-dir=.git/modules/sub", r.dir, "sub")
	for _, gitDir := range []string{".git", ".git/modules/sub"} {
		if held, err := r.ask(gitDir, "MAIN=1\n"); !held || err != nil {
			t.Errorf("Holds(%s) = %v, %v", gitDir, held, err)
		}
	}
	bare := repo{t, filepath.Join(r.dir, ".git")}
	if held, err := bare.ask(".", "MAIN=1\n"); !held || err != nil {
		t.Errorf(`Holds(".") = %v, %v`, held, err)
	}
}

func TestAlternatesAreNotFollowed(t *testing.T) {
	r := newRepo(t)
	r.commit("f", "SHARED=1\n")
	r.git("clone", "-q", "--shared", r.dir, "copy")
	if held, err := r.ask("copy/.git", "SHARED=1\n"); held || err != nil {
		t.Errorf("Holds = %v, %v; want false", held, err)
	}
}

func TestNoRepository(t *testing.T) {
	r := repo{t, t.TempDir()}
	r.want(false, "A=1\n")
	if _, err := r.ask("../etc", "A=1\n"); !errors.Is(err, workfs.ErrPath) {
		t.Errorf("a path that leads out: %v", err)
	}
	if _, err := r.ask(".git", strings.Repeat("x", MaxContent+1)); !errors.Is(err, workfs.ErrTooBig) {
		t.Errorf("too long: %v", err)
	}
}

func TestFIFOsAndSymlinksAreNotOpened(t *testing.T) {
	r := newRepo(t)
	content := "A=1\n"
	id := hex.EncodeToString(blobID(content))
	dir := filepath.Join(r.dir, ".git/objects", id[:2])
	os.Mkdir(dir, 0o700)
	if err := syscall.Mkfifo(filepath.Join(dir, id[2:]), 0o600); err != nil {
		t.Fatal(err)
	}
	r.refused(workfs.ErrKind, content)

	other := newRepo(t)
	other.commit("f", content)
	other.want(true, content)
	os.RemoveAll(filepath.Join(r.dir, ".git/objects"))
	if err := os.Symlink(filepath.Join(other.dir, ".git/objects"), filepath.Join(r.dir, ".git/objects")); err != nil {
		t.Fatal(err)
	}
	r.refused(syscall.ELOOP, content)
}
