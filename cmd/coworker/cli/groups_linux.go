package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/platform/atomicfile"
	"coworker/platform/workfs"
	"coworker/runtime/registries"
	"coworker/runtime/session"
)

// groupRegistries stands for the hosts that this machine's package managers are configured to use.
const groupRegistries = "registries"

// expandGroups puts rules in the place of names of groups, and shows what they stand for. The files tell the managers inside
// the same.
func (e *environment) expandGroups(ctx context.Context, p *planned, f execFlags) (rules []string, files []enforce.File, err error) {
	if !slices.Contains(f.allow, groupRegistries) {
		return f.allow, nil, nil
	}
	// What a session can write counts for nothing: another session may have filled it.
	var folders []string
	for _, dir := range append([]string{f.workspace}, f.writePaths...) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(p.host.Cwd, dir)
		}
		folders = append(folders, dir)
	}
	workspace := folders[0]
	if err := p.host.Dirs.Make(); err != nil {
		return nil, nil, err
	}
	list, err := registries.Discover(ctx, registries.Host{
		Environ: p.host.Environ, Home: e.getenv("HOME"), Root: os.DirFS("/"), Workspaces: folders,
		Cache: registries.FileCache{Path: filepath.Join(p.host.Dirs.State, "registries.json")},
	})
	if err != nil {
		return nil, nil, &usageError{text: "--allow registries: " + err.Error(), hint: "name the hosts themselves: --allow registry.example.com"}
	}
	rules = list.Rules()
	if len(rules) == 0 {
		return nil, nil, &usageError{text: "--allow registries: no package manager of this machine is configured to use a registry", hint: "name the hosts themselves: --allow registry.example.com"}
	}
	pins := registries.Pins(ctx, rules, func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".") // no search list: the name is a whole one
	})
	if err := e.agreeOn(ctx, p, list, pins); err != nil {
		return nil, nil, err
	}
	if root, err := workfs.OpenRoot(workspace); err == nil { // wallspec says what is wrong with a workspace
		for _, n := range registries.ProjectNotes(root, list) {
			e.note("note", n.Manager+": "+visible(n.Text), "")
		}
		root.Close()
	}
	out := slices.DeleteFunc(slices.Clone(f.allow), func(r string) bool { return r == groupRegistries })
	for _, file := range list.Files() {
		files = append(files, enforce.File{Path: file.Path, Data: file.Data})
	}
	return slices.Concat(out, rules, pins), files, nil
}

// agreeOn shows a list that the person has not seen yet, and asks about it where there is a terminal. Without one the flag
// itself is the person's word, and the list is in the record.
func (e *environment) agreeOn(ctx context.Context, p *planned, list registries.List, pins []string) error {
	sum := sha256.Sum256([]byte(strings.Join(list.Rules(), "\n")))
	marker := filepath.Join(p.host.Dirs.State, "registries.seen")
	shown, agreed := hex.EncodeToString(sum[:])+" shown", hex.EncodeToString(sum[:])+" agreed"
	old, err := os.ReadFile(marker)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	people := isTerminal(e.err) && isTerminal(e.in)
	if string(old) == agreed || string(old) == shown && !people {
		return nil
	}
	text := "--allow registries lets this session reach:"
	for _, line := range list.Lines() {
		text += "\n" + visible(line)
	}
	if len(pins) > 0 {
		text += "\nof these in private networks: " + strings.Join(pins, " ")
	}
	e.note("note", text, "")
	if !people {
		return atomicfile.Write(marker, []byte(shown))
	}
	tty, err := openTerminal()
	if err != nil {
		return err
	}
	defer tty.Close()
	answer, err := session.AskLine(ctx, tty, "allow these, now and until the list changes? [y/N] ")
	if err != nil {
		return fmt.Errorf("ask about the registries: %w", err)
	}
	if !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
		return &deniedError{text: "--allow registries: the person said no", hint: "name the hosts themselves: --allow registry.example.com"}
	}
	return atomicfile.Write(marker, []byte(agreed))
}
