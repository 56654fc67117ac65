package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"coworker/platform/config"
	"coworker/platform/paths"
	"coworker/runtime/wallspec"
)

// What prune leaves, where the settings say nothing.
const (
	defaultCacheSize = config.Size(20 << 30)
	defaultCacheAge  = config.Duration(30 * 24 * time.Hour)
)

func cacheCommand(e *environment) *cli.Command {
	asJSON := &cli.BoolFlag{Name: "json", Usage: "JSON on stdout"}
	all := &cli.BoolFlag{Name: "all", Usage: "as root: also the homes of sessions that root ran for other users"}
	return &cli.Command{
		Name:        "cache",
		Usage:       "the private homes: size, prune, reset",
		Description: "Each workspace has a private home with caches and tools. It can be deleted at any time that no session uses it.",
		Subcommands: []*cli.Command{
			{
				Name: "size", Usage: "list the private homes", Flags: []cli.Flag{asJSON, all}, Description: "exit codes: 0",
				Action: noArgs(func(c *cli.Context) error { return cacheSize(e, c.Bool("all"), c.Bool("json")) }),
			},
			{
				Name: "prune", Usage: "delete homes that are old, then the least used until the rest fits",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "size", Usage: "keep them below this `SIZE` (default: cache.size of the settings, or 20GiB)"},
					&cli.StringFlag{Name: "age", Usage: "delete those not used for this `TIME` (default: cache.age of the settings, or 30d)"},
					&cli.BoolFlag{Name: "dry-run", Usage: "only say what would go"}, all,
				},
				Description: "example: coworker cache prune --size 5GiB\nexit codes: 0",
				Action: noArgs(func(c *cli.Context) error {
					return cachePrune(e, pruning{c.String("size"), c.String("age"), c.Bool("dry-run"), c.Bool("all")})
				}),
			},
			{
				Name: "reset", Usage: "delete all private homes, or that of one workspace", Flags: []cli.Flag{&cli.StringFlag{Name: "workspace", Usage: "only that of this `DIR`"}, all},
				Description: "example: coworker cache reset --workspace .\nexit codes: 0",
				Action:      noArgs(func(c *cli.Context) error { return cacheReset(e, c.String("workspace"), c.Bool("all")) }),
			},
		},
	}
}

// home is one private home on disk.
type home struct {
	Key     string    `json:"key"`
	Folder  string    `json:"folder"`
	Size    int64     `json:"size"`
	Entries int       `json:"entries"`
	Used    time.Time `json:"used"`
	Partly  bool      `json:"partly,omitempty"` // it could not be measured to its end

	remove func() error
}

func total(list []home) (n int64) {
	for _, one := range list {
		n += one.Size
	}
	return n
}

func cacheSize(e *environment, all, asJSON bool) error {
	h, _, err := e.findHomes(all)
	if err != nil {
		return err
	}
	defer h.close()
	if asJSON {
		list := h.list
		if list == nil {
			list = []home{}
		}
		return e.printJSON(map[string]any{"homes": list, "size": total(h.list)})
	}
	t := table{}
	t.add("HOME", "SIZE", "FILES", "LAST USED")
	for _, one := range h.list {
		size := sizeText(one.Size)
		if one.Partly {
			size = "at least " + size
		}
		t.add(visible(one.Folder), size, strconv.Itoa(one.Entries), one.Used.Local().Format(time.DateOnly))
	}
	t.add("total", sizeText(total(h.list)))
	t.write(e.out)
	return nil
}

// pruning is what the flags of prune say.
type pruning struct {
	size, age string
	dry, all  bool
}

func cachePrune(e *environment, f pruning) error {
	h, d, err := e.findHomes(f.all)
	if err != nil {
		return err
	}
	defer h.close()
	most, oldest, err := e.pruneLimits(d, f.size, f.age)
	if err != nil {
		return err
	}
	slices.SortFunc(h.list, func(a, b home) int { return a.Used.Compare(b.Used) })
	left := total(h.list)
	for _, one := range h.list {
		if left <= int64(most) && e.now().Sub(one.Used) < time.Duration(oldest) {
			break // those that follow were used later
		}
		if err := e.removeHome(one, f.dry); err != nil {
			return err
		}
		left -= one.Size
	}
	_, err = fmt.Fprintf(e.out, "%s left\n", sizeText(left))
	return resultError(err)
}

func (e *environment) removeHome(one home, dry bool) error {
	if dry {
		_, err := fmt.Fprintf(e.out, "would delete %s (%s)\n", visible(one.Folder), sizeText(one.Size))
		return resultError(err)
	}
	if err := one.remove(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(e.out, "deleted %s (%s)\n", visible(one.Folder), sizeText(one.Size))
	return resultError(err)
}

// pruneLimits takes the flags, else the settings, else the defaults.
func (e *environment) pruneLimits(d paths.Dirs, sizeFlag, ageFlag string) (config.Size, config.Duration, error) {
	settings, err := e.settings(d)
	if err != nil {
		return 0, 0, err
	}
	size, age := defaultCacheSize, defaultCacheAge
	if settings.Cache.Size > 0 {
		size = settings.Cache.Size
	}
	if settings.Cache.Age > 0 {
		age = settings.Cache.Age
	}
	if sizeFlag != "" {
		if size, err = config.ParseSize(sizeFlag); err != nil {
			return 0, 0, &usageError{text: "--size: " + err.Error()}
		}
	}
	if ageFlag != "" {
		if age, err = config.ParseDuration(ageFlag); err != nil {
			return 0, 0, &usageError{text: "--age: " + err.Error()}
		}
	}
	return size, age, nil
}

func cacheReset(e *environment, workspace string, all bool) error {
	h, _, err := e.findHomes(all)
	if err != nil {
		return err
	}
	defer h.close()
	only := ""
	if workspace != "" {
		full, err := filepath.Abs(workspace)
		if err == nil {
			full, err = filepath.EvalSymlinks(full)
		}
		if err != nil {
			return &usageError{text: fmt.Sprintf("--workspace %q: %v", workspace, err)}
		}
		only = wallspec.HomeKey(full)
	}
	for _, one := range h.list {
		if only != "" && one.Key != only {
			continue
		}
		if err := e.removeHome(one, false); err != nil {
			return err
		}
	}
	return nil
}

// sizeText shows a size to one decimal.
func sizeText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") + " " + units[i]
}
