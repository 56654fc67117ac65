//go:build linux

// Command seeker looks for values from inside a cell: in the environment, command line and memory of every process that
// it can see, in every file that it can read, and in what servers answer. It is told the values masked, so that it does
// not find its own copy. Only the tests beside it run it.
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// result is what seeker prints.
type result struct {
	Hits      []string `json:"hits"`
	Files     int      `json:"files"`
	Processes int      `json:"processes"`
	Memory    int64    `json:"memory"` // octets
	Answers   []string `json:"answers"`
	Held      int      `json:"held"` // octets of answers that are in its own memory meanwhile
}

type seeker struct {
	forms  [][]byte // masked
	starts [1 << 16][]int
	since  time.Time // the values are not older
	out    result
}

// mask is what the test puts over the values.
const mask = 0x55

// main takes the file of masked values, then URLs to ask, then after "--" a command that asks too and stays alive until
// its input ends.
func main() {
	s := &seeker{}
	if err := s.run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "seeker:", err)
		os.Exit(1)
	}
}

func (s *seeker) run(args []string) error {
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	info, err := os.Stat(args[0])
	if err != nil {
		return err
	}
	s.since = info.ModTime().Add(-time.Minute)
	for line := range strings.FieldsSeq(string(data)) {
		form, err := hex.DecodeString(line)
		if err != nil {
			return err
		}
		start := uint16(form[0]^mask)<<8 | uint16(form[1]^mask)
		s.starts[start] = append(s.starts[start], len(s.forms))
		s.forms = append(s.forms, form)
	}
	var held [][]byte
	urls, command := split(args[1:])
	for _, url := range urls {
		answer, err := ask(url)
		if err != nil {
			return err
		}
		held = append(held, answer)
		s.out.Held += len(answer)
		s.find("answer of "+url, answer)
	}
	end, err := s.start(command)
	if err != nil {
		return err
	}
	s.files()
	s.processes()
	if err := end(); err != nil {
		return err
	}
	runtime.KeepAlive(held) // the answers were in memory while that was searched
	return json.NewEncoder(os.Stdout).Encode(s.out)
}

func split(args []string) (urls, command []string) {
	for i, a := range args {
		if a == "--" {
			return args[:i], args[i+1:]
		}
	}
	return args, nil
}

// ask gives everything that an answer consists of, interim answers and trailers too.
func ask(url string) ([]byte, error) {
	var all bytes.Buffer
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		fmt.Fprintf(&all, "%d %v\n", code, h)
		return nil
	}}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Fprintf(&all, "%s\n%v\n%s\n%v %v\n", resp.Status, resp.Header, body, resp.Trailer, err)
	return all.Bytes(), nil
}

// start runs the command until it has said one line. The returned function ends it.
func (s *seeker) start(command []string) (end func() error, err error) {
	if len(command) == 0 {
		return func() error { return nil }, nil
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%q said nothing: %w", command, err)
	}
	s.out.Answers = append(s.out.Answers, strings.TrimSpace(line))
	return func() error {
		stdin.Close()
		return cmd.Wait()
	}, nil
}

// find notes which values data holds, in one pass: by the first two octets of the masked values, then by the rest. No
// value is ever written down unmasked.
func (s *seeker) find(place string, data []byte) {
	for at := 0; at+1 < len(data); at++ {
		for _, i := range s.starts[uint16(data[at])<<8|uint16(data[at+1])] {
			if equal(data[at:], s.forms[i]) {
				s.out.Hits = append(s.out.Hits, fmt.Sprintf("value %d in %s at %d", i, place, at))
			}
		}
	}
}

func equal(data, masked []byte) bool {
	if len(data) < len(masked) {
		return false
	}
	for i, c := range masked {
		if data[i] != c^mask {
			return false
		}
	}
	return true
}

// skipped are trees of the system, and what processes looks into.
var skipped = map[string]bool{"/proc": true, "/sys": true, "/usr": true, "/opt": true}

func (s *seeker) files() {
	trees := hostTrees()
	_ = filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // closed to us, and to the rest inside
		case skipped[path] || d.IsDir() && trees[path] == "ro":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		info, err := os.Lstat(path) // the entry itself lies about a device that is mounted over a file
		if err != nil || !info.Mode().IsRegular() || info.ModTime().Before(s.since) && within(path, trees) {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		s.out.Files++
		s.find(path, data)
		return nil
	})
}

// hostTrees are toolchains and caches of the host: mounts that are read-only, and overlays of the host's files
// (proc_pid_mountinfo(5)). They hold hundreds of thousands of files that are older than the values.
func hostTrees() map[string]string {
	out := map[string]string{}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(data)) {
		mount, system, ok := strings.Cut(line, " - ")
		f := strings.Fields(mount)
		switch {
		case !ok || len(f) < 6 || strings.HasPrefix(system, "tmpfs"):
		case strings.HasPrefix(system, "overlay"):
			out[f[4]] = "overlay"
		case strings.HasPrefix(f[5], "ro"):
			out[f[4]] = "ro"
		}
	}
	return out
}

func within(path string, trees map[string]string) bool {
	for tree, kind := range trees {
		if kind == "overlay" && strings.HasPrefix(path, tree+"/") {
			return true
		}
	}
	return false
}

func (s *seeker) processes() {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s.out.Processes++
		for _, name := range []string{"environ", "cmdline", "maps", "status", "mountinfo"} {
			if data, err := os.ReadFile(filepath.Join("/proc", e.Name(), name)); err == nil {
				s.find(fmt.Sprintf("/proc/%d/%s", pid, name), data)
			}
		}
		s.memory(pid)
	}
}

// memory reads what /proc/PID/maps says is readable. Pieces overlap, so that nothing is cut in two.
func (s *seeker) memory(pid int) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return
	}
	defer mem.Close()
	const piece, overlap = 1 << 20, 4 << 10
	buf := make([]byte, piece)
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); n != 3 || rights[0] != 'r' || rights[1] != 'w' {
			continue // what cannot be written lies in files
		}
		for at := from; at < to; at += piece - overlap {
			n, _ := mem.ReadAt(buf[:min(piece, to-at)], at)
			s.out.Memory += int64(n)
			s.find(fmt.Sprintf("memory of %d (%s)", pid, strings.TrimSpace(line)), buf[:n])
		}
	}
}
