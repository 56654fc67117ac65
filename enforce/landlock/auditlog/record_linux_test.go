package auditlog

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"coworker/enforce"
)

const at = "audit(1796000000.349:44): "

func TestRefusalOfRecord(t *testing.T) {
	t.Parallel()
	const workspace = "/home/ada/ws"
	odd := hex.EncodeToString([]byte("/home/ada/two words"))
	for text, want := range map[string]enforce.Refusal{
		`domain=195ba459b blockers=fs.read_file path="/home/ada/notes.txt" dev="vda2" ino=351`: {
			Wall: enforce.FSRead, Hook: "fs.read_file", What: "/home/ada/notes.txt", Needed: "--read /home/ada/notes.txt"},
		`domain=1 blockers=fs.make_reg,fs.refer path="/usr/local" dev="vda2" ino=365`: {
			Wall: enforce.FSWrite, Hook: "fs.make_reg,fs.refer", What: "/usr/local", Needed: "--write /usr/local"},
		`domain=1 blockers=fs.write_file,fs.read_file path="/dev/tty" dev="devtmpfs" ino=9`: {
			Wall: enforce.FSWrite, Hook: "fs.write_file,fs.read_file", What: "/dev/tty", Needed: "--write /dev/tty"},
		`domain=1 blockers=fs.make_reg path="/home/ada/ws/sub" dev="vda2" ino=3`: {
			Wall: enforce.FSWrite, Hook: "fs.make_reg", What: "/home/ada/ws/sub", Needed: "-w"},
		`domain=1 blockers=fs.make_reg path="/home/ada/wsx" dev="vda2" ino=3`: {
			Wall: enforce.FSWrite, Hook: "fs.make_reg", What: "/home/ada/wsx", Needed: "--write /home/ada/wsx"},
		`domain=1 blockers=fs.read_dir path=` + strings.ToUpper(odd) + ` dev="vda2" ino=3`: {
			Wall: enforce.FSRead, Hook: "fs.read_dir", What: "/home/ada/two words", Needed: "--read /home/ada/two words"},
		`domain=1 blockers=fs.execute path=2F61270A62 dev="vda2" ino=3`: {
			Wall: enforce.FSRead, Hook: "fs.execute", What: "/a'\nb", Needed: "--read /a'\nb"},
		`domain=1 blockers=fs.read_file path=2F61202864656C6574656429 dev="vda2" ino=3`: {
			Wall: enforce.FSRead, Hook: "fs.read_file", What: "/a (deleted)"},
		`domain=1 blockers=fs.read_file path="(unreachable)/etc/shadow" dev="vda2" ino=3`: {
			Wall: enforce.FSRead, Hook: "fs.read_file", What: "(unreachable)/etc/shadow"},
		`domain=1 blockers=fs.read_file path="<too_long>" dev="vda2" ino=3`: {
			Wall: enforce.FSRead, Hook: "fs.read_file", What: "<too_long>"},
		`domain=1 blockers=fs.change_topology name="/" dev="tmpfs" ino=1`: {Wall: enforce.Priv, Hook: "fs.change_topology", What: "/"},
		`domain=1a6fdc66f blockers=scope.signal opid=1 ocomm="systemd"`:   {Wall: enforce.Proc, Hook: "scope.signal", What: "process 1 systemd"},
		`domain=1 blockers=ptrace opid=77 ocomm="a"`:                      {Wall: enforce.Proc, Hook: "ptrace", What: "process 77 a"},
		`domain=1 blockers=scope.abstract_unix_socket path=00666F6F`:      {Wall: enforce.NetLocal, Hook: "scope.abstract_unix_socket", What: "\x00foo"},
		`domain=1 blockers=net.connect_tcp daddr=127.0.0.1 dest=80`:       {Wall: enforce.NetEgress, Hook: "net.connect_tcp", What: "127.0.0.1:80"},
		`domain=1 blockers=net.bind_tcp saddr=::1 src=8080`:               {Wall: enforce.NetEgress, Hook: "net.bind_tcp", What: "[::1]:8080"},
		`domain=1 blockers=net.bind_tcp src=1024`:                         {Wall: enforce.NetEgress, Hook: "net.bind_tcp", What: "port 1024"},
		`domain=1 blockers=new.kind`:                                      {Wall: enforce.Kernel, Hook: "new.kind", What: "something that the kernel does not name"},
	} {
		r, err := parse(typeLandlockAccess, at+text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := r.refusal(workspace)
		want.Source, want.Time = enforce.SourceLandlock, time.Unix(1796000000, 349e6)
		if err != nil || got != want {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", text, got, err, want)
		}
	}
}

func TestDomainRecords(t *testing.T) {
	t.Parallel()
	made, err := parse(typeLandlockDomain, at+`domain=195ba459b status=allocated mode=enforcing pid=300 uid=0 exe="/root/x" comm="x"`)
	if err != nil || !made.made || made.pid != 300 || made.domain != 0x195ba459b || made.serial != 44 {
		t.Errorf("%+v, %v", made, err)
	}
	gone, err := parse(typeLandlockDomain, at+`domain=195ba459b status=deallocated denials=3`)
	if err != nil || !gone.gone || gone.made {
		t.Errorf("%+v, %v", gone, err)
	}
}

func TestBrokenRecords(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "audit(", "audit(1.2:3)", "audit(x.349:44): domain=1 blockers=ptrace", "audit(1.1000:44): domain=1 blockers=ptrace",
		"audit(1.2:-3): domain=1 blockers=ptrace", strings.Repeat("a", maxText+1),
		at + "blockers=fs.read_file", at + "domain= blockers=ptrace", at + "domain=0 blockers=ptrace", at + "domain=xyz blockers=ptrace",
		at + "domain=11111111111111111 blockers=ptrace", at + "domain=1 domain=2 blockers=ptrace", at + "domain=1 blockers=",
		at + "domain=1 blockers=fs.read_file,", at + "domain=1 blockers=FS", at + "domain=1 blockers=" + strings.Repeat("a,", 40) + "a",
		at + `domain=1 blockers=ptrace path="/a`, at + `domain=1 blockers=ptrace path="/a"b=1`, at + "domain=1 blockers=ptrace =x",
		at + "domain=1 blockers=ptrace " + strings.Repeat("x=1 ", 2), at + "domain=1",
		at + "domain=1 blockers=ptrace nothing",
	} {
		if r, err := parse(typeLandlockAccess, text); !errors.Is(err, errRecord) {
			t.Errorf("%.80q: %+v, %v", text, r, err)
		}
	}
	for _, text := range []string{
		"domain=1 status=allocated", "domain=1 status=allocated pid=0", "domain=1 status=allocated pid=99999999999", "domain=1 status=new pid=1", "domain=1",
	} {
		if r, err := parse(typeLandlockDomain, at+text); !errors.Is(err, errRecord) {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
	for _, path := range []string{"zz", "2", `"a`, "", "2F6"} {
		r, err := parse(typeLandlockAccess, at+"domain=1 blockers=fs.read_file path="+path)
		if err != nil {
			continue
		}
		if got, err := r.refusal(""); err == nil {
			t.Errorf("path %q: %+v", path, got)
		}
	}
}

// FuzzParse holds whatever the text: no panic, bounded, and a flag is about the path that was refused.
func FuzzParse(f *testing.F) {
	f.Add(uint16(typeLandlockAccess), at+`domain=1 blockers=fs.read_file path="/a" dev="vda2" ino=3`)
	f.Add(uint16(typeLandlockAccess), at+`domain=1 blockers=net.connect_tcp daddr=127.0.0.1 dest=80`)
	f.Add(uint16(typeLandlockDomain), at+`domain=1 status=allocated mode=enforcing pid=300 uid=0 exe="/x" comm="x"`)
	f.Add(uint16(typeSyscall), at+`arch=c000003e syscall=257 success=no exit=-13 pid=300 comm="cat" exe="/usr/bin/cat" key=(null)`)
	f.Fuzz(func(t *testing.T, kind uint16, text string) {
		r, err := parse(kind, text)
		if err != nil || kind != typeLandlockAccess {
			return
		}
		got, err := r.refusal("/ws")
		if err != nil {
			return
		}
		if got.What == "" || len(got.What) > maxText || got.Wall == "" || len(got.Hook) > maxText {
			t.Fatalf("%+v", got)
		}
		flag, word, _ := strings.Cut(got.Needed, " ")
		if flag != "" && flag != "-w" && (word != got.What || word[0] != '/') {
			t.Fatalf("flag %q of %+v", got.Needed, got)
		}
	})
}
