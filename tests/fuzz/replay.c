/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target's entry over files, so that every input that once found a fault is run again by
 * the ordinary tests, with any compiler. Arguments are files or folders (not searched deeper). A
 * target without any input is a mistake: exit 1.
 *
 * Each input is given in a heap block of exactly its size, so that a sanitizer sees the first byte read beyond it. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat about;
    if (!file || fstat(fileno(file), &about) != 0) {
        fprintf(stderr, "replay: cannot read %s\n", path);
        exit(1);
    }
    size_t length = (size_t)about.st_size;
    uint8_t *bytes = malloc(length ? length : 1);
    if (!bytes || fread(bytes, 1, length, file) != length) {
        fprintf(stderr, "replay: short read of %s\n", path);
        exit(1);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, length);
    free(bytes);
    return 1;
}

static int replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) return 0;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[4096];
        struct stat about;
        int length = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof name) continue;
        if (stat(name, &about) == 0 && S_ISREG(about.st_mode)) count += replay_file(name);
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        struct stat about;
        if (stat(argv[i], &about) == 0 && S_ISREG(about.st_mode)) count += replay_file(argv[i]);
        else count += replay_folder(argv[i]);
    }
    printf("%d inputs replayed\n", count);
    return count ? 0 : 1;
}
