package wallspec

import (
	"fmt"
	"path"
	"strings"

	"coworker/enforce"
)

// identity decides who the session runs as: the owner of the workspace or --user if root starts it, else the
// caller. Only what root owns runs as uid 0: a session as root in somebody's folder would leave files there that
// they cannot remove, and would read theirs past their permissions.
func (b *builder) identity() error {
	owner := b.rules[0].info
	uid, gid := b.host.UID, b.host.GID
	if uid == 0 {
		uid, gid = owner.UID, owner.GID
	}
	u, known := b.host.LookupUID(uid)
	if b.req.User != "" {
		if u, known = b.host.LookupUser(b.req.User); !known {
			return refuse("--user", "", "there is no user %q", b.req.User)
		}
		if b.host.UID != 0 && u.UID != b.host.UID {
			return refuse("--user", "run coworker as that user, or as root",
				"uid %d cannot become %q (uid %d)", b.host.UID, b.req.User, u.UID)
		}
		uid = u.UID
	}
	if uid == 0 && owner.UID != 0 {
		return refuse("--user", "leave --user out: the session then runs as the owner",
			"the workspace belongs to uid %d; a session runs as root only where root owns it", owner.UID)
	}
	if uid < 0 {
		return refuse("workspace", "", "the owner of %q is unknown", b.plan.Spec.Workspace)
	}
	if !known {
		u = User{UID: uid, GID: gid}
	}
	if uid == b.host.UID && u.GID != b.host.GID && uid != 0 {
		// The group that the caller has now (newgrp(1), sg(1)): without privileges a process can map
		// no other one (user_namespaces(7)).
		u.GID, u.Group = b.host.GID, ""
	}
	b.user = complete(u)
	b.home = b.user.Home
	if p, _, err := b.host.Files.canonical(b.home); err == nil {
		b.home = p
	}
	if uid != owner.UID {
		b.note(fmt.Sprintf("the workspace belongs to uid %d and the session runs as uid %d: what only the owner may change stays so", owner.UID, uid))
	}
	b.plan.Spec.Identity = enforce.Identity{UID: u.UID, GID: u.GID, Name: b.user.Name, Home: b.home}
	return nil
}

// complete fills what the user database lacks, so that the passwd file inside can be written: the owner of a
// mounted volume often has no entry at all, and system users have "/" or "/nonexistent" as their home.
func complete(u User) User {
	if !plainField(u.Name) || strings.ContainsAny(u.Name, "/ ") {
		u.Name = fmt.Sprintf("u%d", u.UID)
	}
	if !plainField(u.Group) {
		u.Group = u.Name
	}
	if u.Home = path.Clean(u.Home); !plainField(u.Home) || !path.IsAbs(u.Home) || u.Home == "/" || u.Home == "/nonexistent" {
		u.Home = "/home/" + u.Name
	}
	if !plainField(u.Shell) || !path.IsAbs(u.Shell) || !inSystem(u.Shell) || strings.HasSuffix(u.Shell, "/nologin") || strings.HasSuffix(u.Shell, "/false") {
		u.Shell = "/bin/sh"
	}
	return u
}

// plainField reports whether s can stand in a line of passwd(5).
func plainField(s string) bool {
	return s != "" && len(s) < 256 && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == ':' }) < 0
}
