package wallspec

import (
	"path"
	"strconv"
)

// stagesFolder holds what staged sessions wrote and nobody applied yet.
const stagesFolder = "changes"

// StageStore is the folder of staged changes of sessions that run as the user uid. Where root starts a session for somebody
// else the keeper walks there with that user's ids, so it lies beside the private home; otherwise among the caller's state.
func StageStore(host Host, uid int) string {
	if host.UID == 0 && uid != 0 {
		return path.Join(adminCache, strconv.Itoa(uid), stagesFolder)
	}
	return path.Join(host.Dirs.State, stagesFolder)
}
