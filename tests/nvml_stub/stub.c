/* A pretended NVIDIA driver: two RTX 3090s behind NVML's own surface, so that the real bindings are exercised.
 *
 * The file named by NVML_STUB says what is different from two idle cards, one fact a line:
 *     missing-driver | mismatched | hang              NVML as a whole
 *     lost N | unknown N                              a card that does not answer
 *     hot N                                           93 degrees, clocks held down
 *     used N MIB | process N PID MIB                  memory of a card, and who has it
 *     busy N | slow N                                 working; the second at a fraction of its clock
 *     recovery N ACTION                               what the driver says the card needs
 *     warm N DEGREES                                  its temperature, and no clock held down
 *     limit N MILLIWATTS | persistence N 0 or 1       as set; so are the next two
 *     clocks N MHZ | memory-clocks N MHZ              most that they may be
 *     unprivileged                                    setting is refused
 * What is set is added to the file, each setting a fact.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, LOST = 15, MISMATCH = 18, UNKNOWN = 999 };
enum { CARDS = 2, PROCESSES = 8 };
static const unsigned long long MIB = 1024ULL * 1024ULL;

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;
typedef struct { int lost, unknown, hot, busy, slow, recovery, celsius, persistence; unsigned limit, clock, memory_clock; unsigned long long used_mib; unsigned count; process_t processes[PROCESSES]; } card_t;
typedef struct { int missing, mismatched, hang, unprivileged; card_t cards[CARDS]; } state_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned gpu, memory; } rates_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef union { double d; unsigned ui; unsigned long long ull; } value_t;
typedef struct { unsigned id, scope; long long at, latency; unsigned type, ret; value_t value; } field_t;

static state_t look(void) {
    state_t s;
    memset(&s, 0, sizeof s);
    for (int n = 0; n < CARDS; n++) { s.cards[n].used_mib = 14; s.cards[n].limit = 350000; }
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], word[64];
    while (file && fgets(line, sizeof line, file)) {
        int n = 0;
        long a = 0, b = 0;
        if (sscanf(line, "%63s %d %ld %ld", word, &n, &a, &b) < 1 || n < 0 || n >= CARDS) continue;
        card_t *card = &s.cards[n];
        if (!strcmp(word, "missing-driver")) s.missing = 1;
        else if (!strcmp(word, "mismatched")) s.mismatched = 1;
        else if (!strcmp(word, "hang")) s.hang = 1;
        else if (!strcmp(word, "unprivileged")) s.unprivileged = 1;
        else if (!strcmp(word, "warm")) card->celsius = (int)a;
        else if (!strcmp(word, "limit")) card->limit = (unsigned)a;
        else if (!strcmp(word, "persistence")) card->persistence = (int)a;
        else if (!strcmp(word, "clocks")) card->clock = (unsigned)a;
        else if (!strcmp(word, "memory-clocks")) card->memory_clock = (unsigned)a;
        else if (!strcmp(word, "lost")) card->lost = 1;
        else if (!strcmp(word, "unknown")) card->unknown = 1;
        else if (!strcmp(word, "hot")) card->hot = 1;
        else if (!strcmp(word, "busy")) card->busy = 1;
        else if (!strcmp(word, "slow")) card->busy = card->slow = 1;
        else if (!strcmp(word, "used")) card->used_mib = (unsigned long long)a;
        else if (!strcmp(word, "recovery")) card->recovery = (int)a;
        else if (!strcmp(word, "process") && card->count < PROCESSES) {
            card->processes[card->count].pid = (unsigned)a;
            card->processes[card->count++].used = (unsigned long long)b * MIB;
        }
    }
    if (file) fclose(file);
    return s;
}

static int whole(const state_t *s) {
    while (s->hang) sleep(3600);
    return s->missing ? DRIVER_NOT_LOADED : s->mismatched ? MISMATCH : SUCCESS;
}

/* A handle is the card's number plus one. */
static int card_of(void *handle, card_t *card) {
    state_t s = look();
    int error = whole(&s);
    if (error) return error;
    *card = s.cards[(long)handle - 1];
    return card->lost ? LOST : card->unknown ? UNKNOWN : SUCCESS;
}

#define CARD(handle) card_t card; do { int error = card_of(handle, &card); if (error) return error; } while (0)

int nvmlInitWithFlags(unsigned flags) { (void)flags; state_t s = look(); return whole(&s); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    case MISMATCH: return "Driver/library version mismatch";
    case INVALID: return "Invalid Argument";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case NOT_SUPPORTED: return "Not Supported";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "580.95.05"); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { state_t s = look(); *count = CARDS; return whole(&s); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(long)(index + 1);
    CARD(*handle);
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    CARD(handle);
    snprintf(text, size, "NVIDIA GeForce RTX 3090");
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    CARD(handle);
    snprintf(text, size, "GPU-%08ld-0000-0000-0000-000000000000", (long)handle - 1);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *handle, pci_t *pci) {
    CARD(handle);
    memset(pci, 0, sizeof *pci);
    pci->bus = 10 * (unsigned)(long)handle;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    CARD(handle);
    memory->total = 24576 * MIB;
    memory->used = (card.used_mib + 261) * MIB;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *memory) {
    CARD(handle);
    memory->total = 24576 * MIB;
    memory->reserved = 261 * MIB;
    memory->used = card.used_mib * MIB;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, rates_t *rates) {
    CARD(handle);
    rates->gpu = card.hot || card.busy ? 100 : 0;
    rates->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *handle, unsigned kind, unsigned *megahertz) {
    CARD(handle);
    unsigned most = kind == 2 ? card.memory_clock : card.clock;
    *megahertz = kind == 2 ? (card.busy ? 9501 : 405) : card.slow ? 405 : card.busy ? 1695 : 210;
    if (most && *megahertz > most) *megahertz = most;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(void *handle, unsigned kind, unsigned *megahertz) {
    CARD(handle);
    *megahertz = kind == 2 ? 9751 : 2100;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *degrees) {
    (void)sensor;
    CARD(handle);
    *degrees = card.celsius ? (unsigned)card.celsius : card.hot ? 93 : 38;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    CARD(handle);
    *milliwatts = card.hot ? 348500 : 21500;
    return SUCCESS;
}

int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *milliwatts) { CARD(handle); *milliwatts = card.limit; return SUCCESS; }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) { CARD(handle); *milliwatts = card.limit; return SUCCESS; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned *milliwatts) { CARD(handle); *milliwatts = 350000; return SUCCESS; }

int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned *least, unsigned *most) {
    CARD(handle);
    *least = 100000, *most = 366000;
    return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode) { CARD(handle); *mode = (unsigned)card.persistence; return SUCCESS; }

static int set(void *handle, const char *word, unsigned value) {
    CARD(handle);
    if (look().unprivileged) return NO_PERMISSION;
    FILE *file = fopen(getenv("NVML_STUB"), "a");
    if (!file) return UNKNOWN;
    fprintf(file, "%s %ld %u\n", word, (long)handle - 1, value);
    fclose(file);
    return SUCCESS;
}

int nvmlDeviceSetPowerManagementLimit(void *handle, unsigned milliwatts) {
    return milliwatts < 100000 || milliwatts > 366000 ? INVALID : set(handle, "limit", milliwatts);
}

int nvmlDeviceSetPersistenceMode(void *handle, unsigned mode) { return set(handle, "persistence", mode); }
int nvmlDeviceSetGpuLockedClocks(void *handle, unsigned least, unsigned most) { (void)least; return set(handle, "clocks", most); }
int nvmlDeviceSetMemoryLockedClocks(void *handle, unsigned least, unsigned most) { (void)least; return set(handle, "memory-clocks", most); }

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    CARD(handle);
    *reasons = card.hot ? 0x20 | 0x40 : 0x1;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_t *processes) {
    CARD(handle);
    unsigned room = *count;
    *count = card.count;
    if (card.count == 0) return SUCCESS;
    if (processes == NULL || room < card.count) return INSUFFICIENT_SIZE;
    memcpy(processes, card.processes, card.count * sizeof *processes);
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, process_t *processes) {
    (void)processes;
    CARD(handle);
    *count = 0;
    return SUCCESS;
}

/* As on a real 3090. */
int nvmlDeviceGetTotalEccErrors(void *handle, unsigned type, unsigned counter, unsigned long long *count) {
    (void)type, (void)counter, (void)count;
    CARD(handle);
    return NOT_SUPPORTED;
}

int nvmlDeviceGetFieldValues(void *handle, int count, field_t *values) {
    CARD(handle);
    for (int n = 0; n < count; n++) {
        values[n].ret = values[n].id == 230 ? SUCCESS : NOT_SUPPORTED;
        values[n].value.ui = (unsigned)card.recovery;
    }
    return SUCCESS;
}
