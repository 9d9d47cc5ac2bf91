package orphans

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file finds the addresses that a process listens on, to help a user find the process. The links in /proc/PID/fd
// name its sockets, such as "socket:[4711]", and the tables in /proc/net say which sockets are listening. See
// proc_pid_net(5).

const (
	maxListens   = 16     // addresses per process
	maxSockets   = 4096   // descriptors read per process
	maxListeners = 10_000 // listening sockets kept from all tables
	maxDir       = 1 << 10
	maxAddress   = 108 // see unix(7)
)

// listens returns the addresses that a process listens on. It returns nil if fini may not read the descriptors of the
// process, or if the process is in another network namespace, which has its own tables. It reads the tables into
// listening when it finds the first socket.
func (f *files) listens(dir string, listening *map[string]string) []string {
	own := f.Link("self/ns/net")
	if own == "" || own != f.Link(dir+"/ns/net") {
		return nil
	}
	var sockets []string
	looked, known := 0, true
	err := f.List(dir+"/fd", func(fd int) bool {
		opened, err := f.Descriptor(dir, fd).Text()
		if strings.HasPrefix(opened, "socket:[") {
			sockets = append(sockets, opened)
		}
		looked, known = looked+1, err == nil
		return looked < maxSockets && known
	})
	if err != nil || !known {
		return nil
	}
	found := []string{}
	if len(sockets) == 0 {
		return found
	}
	if *listening == nil {
		*listening = f.listeners()
	}
	for _, socket := range sockets {
		if address, ok := (*listening)[socket]; ok && len(found) < maxListens && !slices.Contains(found, address) {
			found = append(found, address)
		}
	}
	return found
}

// listeners maps the link of each listening socket in this network namespace to the socket's address.
func (f *files) listeners() map[string]string {
	found := map[string]string{}
	for name, parse := range map[string]func(line []byte) (inode, address string){
		"tcp": parseTCP, "tcp6": parseTCP, "unix": parseUnix,
	} {
		// The kernel lists listening TCP sockets first.
		_ = f.Each("self/net/"+name, '\n', proc.MaxText, func(line []byte, whole bool) (more bool) {
			if inode, address := parse(line); whole && address != "" {
				found["socket:["+inode+"]"] = address
			}
			return len(found) < maxListeners
		})
	}
	return found
}

// parseTCP parses a line of /proc/net/tcp or tcp6. The address is "" if the socket is not listening.
func parseTCP(line []byte) (inode, address string) {
	const listen = "0A" // TCP_LISTEN in the kernel's net/tcp_states.h
	fields := strings.Fields(string(line))
	if len(fields) < 10 || fields[3] != listen {
		return "", ""
	}
	return fields[9], parseAddress(fields[1])
}

// parseAddress parses a hexadecimal address, which consists of 32-bit words in native byte order and the port. It
// returns "" if text is not an address.
func parseAddress(text string) string {
	words, number, _ := strings.Cut(text, ":")
	port, err := strconv.ParseUint(number, 16, 16)
	ip, err2 := hex.DecodeString(words)
	for i := 0; i+4 <= len(ip); i += 4 {
		binary.NativeEndian.PutUint32(ip[i:], binary.BigEndian.Uint32(ip[i:]))
	}
	host, isAddress := netip.AddrFromSlice(ip)
	if err != nil || err2 != nil || !isAddress {
		return ""
	}
	return netip.AddrPortFrom(host, uint16(port)).String()
}

// parseUnix parses a line of /proc/net/unix. The name is "" if the socket is not listening or has no name. It may
// contain any characters.
func parseUnix(line []byte) (inode, name string) {
	const accepts = 0x10000 // __SO_ACCEPTCON in the kernel's linux/net.h
	fields := strings.Fields(string(line))
	if len(fields) < 8 {
		return "", ""
	}
	flags, err := strconv.ParseUint(fields[3], 16, 32)
	if err != nil || flags&accepts == 0 {
		return "", ""
	}
	// The name is the rest of the line because it may contain spaces.
	_, name, _ = strings.Cut(string(line), " "+fields[6]+" ")
	return fields[6], name[:min(len(name), maxAddress)]
}
