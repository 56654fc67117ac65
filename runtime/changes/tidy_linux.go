package changes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// DefaultKeep is how long an apply can be undone.
const DefaultKeep = 14 * 24 * time.Hour

// Tidy removes stages of ended sessions that have nothing to apply and whose last apply is older than keep. Stages with
// something to apply stay until a person applies or discards them.
func (s *Store) Tidy(ctx context.Context, now time.Time, keep time.Duration) (removed []string, err error) {
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, sum := range list {
		if sum.Live || sum.Problem != "" || now.Sub(sum.Created) < keep || !s.idle(sum.Session, now, keep) {
			continue
		}
		gone, err := s.tidyOne(ctx, sum.Session)
		if err != nil && !errors.Is(err, ErrBusy) {
			errs = append(errs, err)
		}
		if gone {
			removed = append(removed, sum.Session)
		}
	}
	return removed, errors.Join(errs...)
}

// idle says that nothing was applied or undone for a while.
func (s *Store) idle(session string, now time.Time, keep time.Duration) bool {
	logs, err := journals(filepath.Join(s.dir, session))
	if err != nil {
		return false
	}
	for _, l := range logs {
		info, err := os.Stat(l.path)
		if err != nil || now.Sub(info.ModTime()) < keep {
			return false
		}
	}
	return true
}

func (s *Store) tidyOne(ctx context.Context, session string) (bool, error) {
	st, err := s.Open(session)
	if err != nil {
		return false, err
	}
	set, err := st.Changes(ctx)
	if err != nil || len(set.Changes) > 0 {
		return false, errors.Join(err, st.Close())
	}
	return true, st.Discard(ctx)
}
