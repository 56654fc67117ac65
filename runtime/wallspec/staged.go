package wallspec

import "path"

// stagesFolder holds what staged sessions wrote and nobody applied yet.
const stagesFolder = "changes"

// adminStages holds those of sessions that root starts for other users: the keeper walks there with their ids, and root's
// state is closed to them. Only root can write there.
const adminStages = "/var/lib/coworker"

// StageStore is the folder of staged changes of sessions that run as the user uid.
func StageStore(host Host, uid int) string {
	if host.UID == 0 && uid != 0 {
		return path.Join(adminStages, stagesFolder)
	}
	return path.Join(host.Dirs.State, stagesFolder)
}
