package bench

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// series are milliseconds by label, one for each round.
type series map[string][]float64

func (s series) add(round map[string]float64) {
	for label, v := range round {
		s[label] = append(s[label], v)
	}
}

func (s series) median(label string) float64 { return median(s[label]) }

// over is the median of the ratios, 0 if either was not measured.
func (s series) over(label, base string) float64 { return median(ratios(s[label], s[base])) }

// best divides the shortest rounds: for work that takes long enough, they are the ones that other load hit least.
func (s series) best(label, base string) float64 {
	if len(s[label]) == 0 || len(s[base]) == 0 {
		return 0
	}
	return slices.Min(s[label]) / slices.Min(s[base])
}

// bestAdded is the difference of the shortest rounds.
func (s series) bestAdded(label, base string) float64 {
	return slices.Min(s[label]) - slices.Min(s[base])
}

// added is the median of the differences.
func (s series) added(label, base string) float64 {
	out := make([]float64, min(len(s[label]), len(s[base])))
	for i := range out {
		out[i] = s[label][i] - s[base][i]
	}
	return median(out)
}

func (s series) metrics(b *testing.B) {
	b.ReportMetric(0, "ns/op") // the sum over all labels says nothing
	for _, label := range slices.Sorted(maps.Keys(s)) {
		b.ReportMetric(s.median(label), label+"-ms")
	}
}

// minRounds is how often everything runs at least, however long it takes.
const minRounds = 3

// rotated starts each round with another label, so that none profits from always following the same one.
func rotated(labels []string, round int) []string {
	n := round % len(labels)
	return append(slices.Clone(labels[n:]), labels[:n]...)
}

// rounds runs commands in turn, each as its own process of the place's user.
func (p place) rounds(b *testing.B, commands map[string][]string) series {
	b.Helper()
	return loop(b, commands, func(order []string) map[string]float64 {
		round := map[string]float64{}
		for _, label := range order {
			argv := commands[label]
			cmd := p.command(argv[0], argv[1:]...)
			begun := time.Now()
			text, err := cmd.CombinedOutput()
			round[label] = since(begun)
			if err != nil {
				b.Fatalf("%s: %v\n%s", label, err, text)
			}
		}
		return round
	})
}

func loop(b *testing.B, commands map[string][]string, round func(order []string) map[string]float64) series {
	b.Helper()
	labels := slices.Sorted(maps.Keys(commands))
	out := series{}
	n := 0
	for ; b.Loop(); n++ {
		out.add(round(rotated(labels, n)))
	}
	for ; n < minRounds; n++ {
		out.add(round(rotated(labels, n)))
	}
	return out
}

// rounds runs commands in turn, from inside the helper.
func (h *helper) rounds(commands map[string][]string) series {
	h.b.Helper()
	return loop(h.b, commands, func(order []string) map[string]float64 {
		return h.ask(request{Variants: commands, Order: order})
	})
}

// makeRepository fills the workspace with files, in folders of fifty, and commits them.
func (p place) makeRepository(b *testing.B, files int) {
	b.Helper()
	p.makeFiles(b, files, []byte("package none // a file with a line or two in it\n"))
	script := "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -q -m m"
	if out, err := p.command("/bin/sh", "-c", script).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
}

func (p place) makeFiles(b *testing.B, files int, content []byte) {
	b.Helper()
	for i := range files {
		dir := filepath.Join(p.workspace, fmt.Sprintf("d%02d", i/2500), fmt.Sprintf("d%02d", i/50%50))
		if i%50 == 0 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.go", i)), content, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.MkdirAll(p.workspace, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := p.user.Own(p.workspace); err != nil {
		b.Fatal(err)
	}
}

// bwrap is the usual way to call bubblewrap for the promises of exec: system read-only, one folder writable, no network.
func (p place) bwrap(argv ...string) []string {
	out := strings.Fields("/usr/bin/bwrap --unshare-all --die-with-parent --new-session --ro-bind /usr /usr --ro-bind /etc /etc " +
		"--symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp")
	out = append(out, "--bind", p.workspace, p.workspace, "--chdir", p.workspace, "--")
	return append(out, argv...)
}

// addPeer adds a command if it is installed and works once; otherwise the table says that it was left out.
func (p place) addPeer(commands map[string][]string, label string, argv []string) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		report.note("%s is not installed, so it is not compared", label)
		return
	}
	if out, err := p.command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		report.note("%s does not work as %s, so it is not compared: %v %.200s", label, p.user, err, out)
		return
	}
	commands[label] = argv
}
