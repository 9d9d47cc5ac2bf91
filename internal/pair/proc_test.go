package pair

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProcMounts(t *testing.T) {
	const rest = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n24 27 0:6 / /process rw - tmpfs tmpfs rw\n"
	for name, c := range map[string]struct {
		text  string
		want  *procMount
		below []string
	}{
		"none":  {rest, nil, nil},
		"plain": {rest + "22 27 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:5 - proc proc rw\n", &procMount{unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME, "", false}, nil},
		"options": {"22 27 0:21 / /proc ro,noatime - proc proc rw,gid=4,hidepid=invisible\n",
			&procMount{unix.MS_RDONLY | unix.MS_NOATIME, "gid=4,hidepid=invisible", false}, nil},
		"masks": {"22 27 0:21 / /proc rw - proc proc rw\n30 22 0:21 /sys /proc/sys ro - proc proc rw\n31 22 0:6 /null /proc/kcore rw - devtmpfs udev rw\n" +
			"32 30 0:99 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n33 32 0:98 / /proc/sys/fs/binfmt_misc rw - binfmt_misc binfmt_misc rw\n",
			&procMount{0, "", false}, []string{"/proc/kcore", "/proc/sys"}},
		"two on one, the first hidden": {"22 27 0:21 / /proc rw - proc proc rw\n30 22 0:21 /sys/fs /proc/sys/fs rw - proc proc rw\n31 22 0:21 /sys /proc/sys rw - proc proc rw\n32 31 0:9 / /proc/sys rw - tmpfs none rw\n",
			&procMount{0, "", false}, []string{"/proc/sys"}},
		"isolated before": {"22 27 0:21 / /proc rw - proc proc rw\n30 22 0:21 /sys /proc/sys rw - proc proc rw\n31 22 0:9 / /proc/7 rw - tmpfs none rw\n40 22 0:50 / /proc rw - proc proc rw\n41 40 0:21 /sys /proc/sys rw - proc proc rw\n",
			&procMount{0, "", false}, []string{"/proc/sys"}},
		"unbindable": {"22 27 0:21 / /proc rw - proc proc rw\n30 22 0:21 /sys /proc/sys rw master:3 - proc proc rw\n31 30 0:9 / /proc/sys/fs rw unbindable - tmpfs none rw\n",
			&procMount{0, "", true}, []string{"/proc/sys"}},
		"covered":  {"22 27 0:21 / /proc rw - proc proc rw\n23 22 0:9 / /proc rw - tmpfs none rw\n", nil, nil},
		"not proc": {"22 27 0:9 / /proc rw - tmpfs none rw\n", nil, nil},
		"cut":      {"22 27 0:21 / /proc\n\n - proc\n22 27 0:21 / /proc rw\n", nil, nil},
	} {
		got, below := procMounts(c.text)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want || !slices.Equal(below, c.below) {
			t.Errorf("%s: got %+v, %q", name, got, below)
		}
	}
}
