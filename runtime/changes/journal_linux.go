package changes

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A journal is one apply and, after it, its undo. Each line is a checksum and one JSON object:
//
//	head  the token that names this apply's temporary files
//	plan  one for each step, all of them durable before the first step
//	go    the inode that is about to be moved to the path
//	done  the step is done, and how the path stands now
//	as-was  the step was rolled back, which left its traces on the path
//	end   every step was tried
//	undo, back-go, back, undone: the same for taking it back
//
// Lines after the plan are written, not synced: they survive the death of the process. After a power cut the state of the
// paths themselves tells what was done, see recover_linux.go.
type line struct {
	K     string `json:"k"`
	Token string `json:"token,omitempty"`
	Op    *op    `json:"op,omitempty"`
	N     int    `json:"n,omitempty"`
	Ino   uint64 `json:"ino,omitempty"`
	New   *stamp `json:"new,omitempty"` // nil in done and back: nothing stands there
	S     int64  `json:"s,omitempty"`   // order of done and back lines over all journals of a stage
}

// op is one step of a plan.
type op struct {
	N     int    `json:"n"`
	T     int    `json:"t"`
	Act   action `json:"a"`
	P     []byte `json:"p"`
	Old   *stamp `json:"old,omitempty"`
	Upper string `json:"u,omitempty"`
	Attr  *attrs `json:"attr,omitempty"` // before, of a folder that goes and of what stands
	Want  *attrs `json:"want,omitempty"` // after, of what stands

	data []byte // instead of the session's bytes; only in the process that made the plan
	twin *op    // the other name of the same file

	// What the lines that follow say.
	ino, backIno uint64
	expect       uint64 // the inode that the step in progress brings to the path
	done, back   bool
	now          *stamp
	events       []event
}

// event is one done or back line.
type event struct {
	seq   int64
	op    *op
	back  bool
	stamp bool // nothing was done in the end, but the path has another change time
	now   *stamp
}

func (o *op) rel() string { return string(o.P) }

// leavesNothing says whether nothing stands at the path after the step, or after its undo.
func (o *op) leavesNothing(back bool) bool {
	if back {
		return o.Act == mkdir || o.Act == put && o.Old == nil
	}
	return o.Act == remove || o.Act == rmdir
}

// undoName is where what stood at the path is kept.
func (o *op) undoName() string { return strconv.Itoa(o.N) }

type journal struct {
	file  *os.File
	path  string
	id    string
	token string
	ops   []*op
	ended bool
	undo  bool // an undo began
}

// temp is the name of a step's temporary file in the folder of its path.
func (j *journal) temp(o *op) string { return ".coworker-" + j.token + "-" + strconv.Itoa(o.N) }

type journalFile struct {
	path, id string
	undone   bool
}

const (
	logSuffix    = ".log"
	undoneSuffix = ".undone"
)

// journals lists those of a stage, oldest first.
func journals(dir string) ([]journalFile, error) {
	entries, err := os.ReadDir(filepath.Join(dir, journalDir))
	if err != nil {
		return nil, err
	}
	var list []journalFile
	for _, e := range entries {
		path := filepath.Join(dir, journalDir, e.Name())
		if id, ok := strings.CutSuffix(e.Name(), logSuffix); ok {
			list = append(list, journalFile{path: path, id: id})
		} else if id, ok := strings.CutSuffix(e.Name(), undoneSuffix); ok {
			list = append(list, journalFile{path: path, id: id, undone: true})
		}
	}
	slices.SortFunc(list, func(a, b journalFile) int { return strings.Compare(a.id, b.id) })
	return list, nil
}

// begin writes the plan and makes it durable.
func (st *Stage) begin(ops []*op) (*journal, error) {
	id := fmt.Sprintf("%06d", st.next)
	j := &journal{id: id, path: filepath.Join(st.dir, journalDir, id+logSuffix), token: strings.ToLower(rand.Text()[:16]), ops: ops}
	part := j.path + ".part"
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	j.file = f
	w := bufio.NewWriterSize(f, 1<<16)
	err = encode(w, line{K: "head", Token: j.token})
	for i, o := range ops {
		o.N = i + 1
		err = errors.Join(err, encode(w, line{K: "plan", Op: o}))
	}
	err = errors.Join(err, w.Flush(), f.Sync())
	if err == nil {
		err = errors.Join(os.Rename(part, j.path), syncFolder(filepath.Dir(j.path)))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	st.next++
	return j, nil
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (j *journal) write(l line) error {
	return encode(j.file, l)
}

// encode writes one line with its checksum, in one call.
func encode(w io.Writer, l line) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%08x %s\n", crc32.ChecksumIEEE(data), data)
	return err
}

func decode(text []byte) (l line, err error) {
	sum, data, ok := bytes.Cut(bytes.TrimSuffix(text, []byte("\n")), []byte(" "))
	if !ok || string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(data)) {
		return l, errLine
	}
	return l, json.Unmarshal(data, &l)
}

// close makes the journal durable.
func (j *journal) close() error { return errors.Join(j.file.Sync(), j.file.Close()) }

// openJournal reads a journal. A last line that is not whole was being written when the process died.
func openJournal(f journalFile) (*journal, error) {
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	j := &journal{file: file, path: f.path, id: f.id}
	r := bufio.NewReaderSize(file, 1<<16)
	var good int64
	for {
		text, err := r.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		var l line
		if err == nil {
			l, err = decode(text)
		}
		if err == nil {
			err = j.apply(l)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("journal %s: %w: %w", f.path, ErrTorn, err), file.Close())
		}
		good += int64(len(text))
	}
	if err := file.Truncate(good); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return j, nil
}

var errLine = errors.New("a line that does not fit")

// apply learns one line.
func (j *journal) apply(l line) error {
	switch l.K {
	case "head":
		j.token = l.Token
		return nil
	case "plan":
		if l.Op == nil || l.Op.N != len(j.ops)+1 {
			return errLine
		}
		j.ops = append(j.ops, l.Op)
		return nil
	case "end":
		j.ended = true
		return nil
	case "undo":
		j.undo = true
		return nil
	case "undone":
		return nil
	}
	if l.N < 1 || l.N > len(j.ops) {
		return errLine
	}
	o := j.ops[l.N-1]
	switch l.K {
	case "go":
		o.ino = l.Ino
	case "done":
		o.done, o.now = true, l.New
		o.events = append(o.events, event{seq: l.S, op: o, now: l.New})
	case "as-was":
		o.events = append(o.events, event{seq: l.S, op: o, stamp: true, now: l.New})
	case "back-go":
		o.backIno = l.Ino
	case "back":
		o.back, o.now = true, l.New
		o.events = append(o.events, event{seq: l.S, op: o, back: true, now: l.New})
	default:
		return errLine
	}
	return nil
}

// learn takes over what a step, or its undo, did to what is known of a tree.
func (st *Stage) learn(e event) {
	o := e.op
	st.seq = max(st.seq, e.seq)
	if o.T < 0 || o.T >= len(st.trees) {
		return
	}
	t, rel := st.trees[o.T], o.rel()
	switch {
	case e.stamp:
	case e.back && o.Act != note:
		delete(t.seen, rel)
	case !e.back && o.Upper != "":
		t.seen[rel] = o.Upper
	}
	if o.Act == note || o.Act == set && o.Upper == "" {
		return // the host's path is what it was
	}
	if o.Old == nil && (o.Act == put || o.Act == mkdir) {
		t.ours[rel] = !e.back && !e.stamp
	}
	if e.now == nil {
		delete(t.base, rel)
	} else {
		t.base[rel] = *e.now
	}
}

// replay reads the journals, and finishes one that a killed process left.
func (st *Stage) replay() error {
	list, err := journals(st.dir)
	if err != nil {
		return err
	}
	st.next = 1
	var all []event
	var open *journal
	for _, f := range list {
		n, err := strconv.Atoi(f.id)
		if err != nil {
			return fmt.Errorf("journal %s: %w", f.path, ErrTorn)
		}
		st.next = n + 1
		j, err := openJournal(f)
		if err != nil {
			return err
		}
		for _, o := range j.ops {
			all = append(all, o.events...)
		}
		if !f.undone && (!j.ended || j.undo) {
			open = j // only one can be: nothing else begins before it is dealt with
			continue
		}
		if err := j.file.Close(); err != nil {
			return err
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.seq, b.seq) })
	for _, e := range all {
		st.learn(e)
	}
	if open == nil {
		return nil
	}
	st.finished = open.id
	return errors.Join(st.resume(open), open.close())
}

// did records that a step, or its undo, is done, and how the path stands now.
func (st *Stage) did(j *journal, o *op, back bool, now *stamp) error {
	k := "done"
	if back {
		k = "back"
	}
	return st.record(j, line{K: k, N: o.N, New: now})
}

func (st *Stage) record(j *journal, l line) error {
	st.seq++
	l.S = st.seq
	if err := j.write(l); err != nil {
		return err
	}
	if err := j.apply(l); err != nil {
		return err
	}
	events := j.ops[l.N-1].events
	st.learn(events[len(events)-1])
	return nil
}
