/* SPDX-License-Identifier: Apache-2.0 */
/*   /proc/net/tcp, tcp6   "N: ADDRESS:PORT REMOTE 0A ... UID 0 INODE"   who listens, by inode
 *   /proc/PID/fd/N        -> "socket:[INODE]"                           whose it is */
#include "host/port_owner.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/cgroup.h"

enum { PORT_OWNER_LINE_BYTES = 512, PORT_OWNER_LISTEN = 0x0a };

/* The inode of a line that listens on the port; 0: it is another's. */
static unsigned long port_owner_of_line(const char *line, uint16_t port)
{
    unsigned local, state;
    unsigned long inode;
    const char *colon = strchr(line, ':'), *second = colon ? strchr(colon + 1, ':') : NULL;
    if (!second) return 0;
    char *end;
    local = (unsigned)strtoul(second + 1, &end, 16);
    while (*end == ' ') end++;
    end += strcspn(end, " "); /* the remote address */
    state = (unsigned)strtoul(end, &end, 16);
    if (local != port || state != PORT_OWNER_LISTEN) return 0;
    for (int skip = 0; skip < 5; skip++) { /* queues, timer, retransmits, user, timeout */
        while (*end == ' ') end++;
        end += strcspn(end, " ");
    }
    inode = strtoul(end, NULL, 10);
    return inode;
}

static unsigned long port_owner_inode(const char *path, uint16_t port)
{
    char line[PORT_OWNER_LINE_BYTES];
    unsigned long inode = 0;
    FILE *file = fopen(path, "re");
    while (file && !inode && fgets(line, sizeof line, file)) inode = port_owner_of_line(line, port);
    if (file) (void)fclose(file);
    return inode;
}

static bool port_owner_has(const char *folder, unsigned long inode)
{
    char wanted[48], found[48];
    bool has = false;
    DIR *d = opendir(folder);
    (void)snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    for (struct dirent *e; d && !has && (e = readdir(d)) != NULL;) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, found, sizeof found - 1);
        if (n <= 0) continue;
        found[n] = 0;
        has = strcmp(found, wanted) == 0;
    }
    if (d) (void)closedir(d);
    return has;
}

/* Of the file that the process runs; what it calls itself where that may not be seen. */
static void port_owner_name(const char *pid, char *name)
{
    char path[64], file[4096];
    (void)snprintf(path, sizeof path, "/proc/%.10s/exe", pid);
    ssize_t n = readlink(path, file, sizeof file - 1);
    file[n > 0 ? n : 0] = 0;
    const char *slash = strrchr(file, '/');
    (void)snprintf(name, PORT_OWNER_NAME_BYTES, "%.31s", slash ? slash + 1 : "");
    (void)snprintf(path, sizeof path, "/proc/%.10s", pid);
    if (!slash && !cgroup_text(path, "comm", name, PORT_OWNER_NAME_BYTES)) name[0] = 0;
    name[strcspn(name, " \n")] = 0; /* " (deleted)" of one that was replaced */
}

static bool port_owner_process(unsigned long inode, pid_t *pid, char *name)
{
    bool found = false;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && !found && (e = readdir(d)) != NULL;) {
        char folder[64];
        if (strspn(e->d_name, "0123456789") != strlen(e->d_name) || strlen(e->d_name) > 10)
            continue;
        (void)snprintf(folder, sizeof folder, "/proc/%.10s/fd", e->d_name);
        if (!port_owner_has(folder, inode)) continue;
        found = true;
        *pid = (pid_t)strtol(e->d_name, NULL, 10);
        port_owner_name(e->d_name, name);
    }
    if (d) (void)closedir(d);
    return found;
}

bool port_owner(uint16_t port, pid_t *pid, char name[PORT_OWNER_NAME_BYTES])
{
    unsigned long inode = port_owner_inode("/proc/net/tcp", port);
    if (!inode) inode = port_owner_inode("/proc/net/tcp6", port);
    return inode && port_owner_process(inode, pid, name);
}
